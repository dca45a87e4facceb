"""Golden cases of two threads of a rank that make collectives in one process group at once."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import SAVE, as_recorded, call, done, hang, in_cpp, in_torch, library, stack, waiting
from scenes import STEP, T, aborted_in_collective, case, lost_peer, rank

from safelaunch.model import Case, Collective, Location, RankFacts

STARTED = (library("concurrent/futures/thread.py", 83, "_worker"), library("threading.py", 1002, "Thread._bootstrap"))
SAVES = "all_gather", "train.py:120"


def in_both(number: int, reduces: int, gathers: int, beginning: tuple[Location, ...] = STARTED) -> RankFacts:
    """A rank whose main thread is in a reduction of its backward pass, while a second one saves."""
    facts = in_cpp(waiting(number, call(seq=reduces, size=2)))
    other = stack(facts.pid, in_torch("all_gather"), SAVE, *beginning, thread=9100 + number, name="saver_0")
    saves = call("all_gather", gathers, at=SAVE, size=2, t=T + 0.03, thread=9100 + number)
    calls: list[Collective] = sorted((call(seq=reduces, size=2), saves), key=lambda one: one.seq)
    return dataclasses.replace(
        facts,
        collectives=(done(call(size=2), 11), saves),
        recorded=as_recorded(calls),
        stacks=(*facts.stacks, other),
    )


def of_size(numel: int, seq: int, number: int, *, main: bool = True) -> Collective:
    """A call of the main thread, or of one that counts."""
    place, thread = (STEP, 4100) if main else (SAVE, 9100)
    return dataclasses.replace(call(seq=seq, at=place, size=2, thread=thread + number), numel=numel)


def brings_both(number: int) -> RankFacts:
    """A rank of which the counting thread came first, and the main thread behind it."""
    return aborted_in_collective(rank(number, inside=(of_size(1, 12, number, main=False), of_size(64, 13, number))))


def brings_one(number: int) -> RankFacts:
    """A rank of which the main thread came first."""
    return rank(number, inside=(of_size(64, 12, number),))


def unnumbered(facts: RankFacts) -> RankFacts:
    """The same rank with the stacks that its own handler has written."""
    main, other = facts.stacks
    written = dataclasses.replace(other, thread=0, name="", source="faulthandler")
    return dataclasses.replace(facts, stacks=(written, main))


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    named = Expected(
        "SL302",
        (),
        place(SAVE),
        conclusive=True,
        mentions=(
            f"two threads of ranks 0 and 1 use one process group at once (train.py:{STEP.line} and {SAVES[1]})",
            f"rank 0 is in {SAVES[0]} #12 ({SAVES[1]}) by thread saver_0, and behind it in all_reduce #13",
            "rank 1 is in all_reduce #12",
            "a process group of its own",
        ),
    )
    one = dataclasses.replace(
        named, mentions=("two threads of rank 0 use one process group at once", "rank 1 is in all_reduce #12")
    )
    of_sizes = dataclasses.replace(
        named,
        code="SL411",
        location=place(STEP),
        secondary=(0, 1),
        conclusive=None,
        mentions=("two threads of rank 0 use one process group at once", "a process group of its own"),
    )
    of_autograd = (Location("/opt/torch/autograd/function.py", 311, "apply"),)
    return {
        "gloo-breaks-two-threads-in-one-group": (
            case(brings_both(0), lost_peer(brings_one(1)), world_size=2),
            of_sizes,
        ),
        "hang-two-threads-in-one-group": (hang(in_both(0, 13, 12), in_both(1, 12, 13)), named),
        # Where py-spy may not look: the rank's own handler knows no thread by the kernel's number.
        "hang-two-threads-that-faulthandler-shows": (
            hang(*map(unnumbered, (in_both(0, 13, 12), in_both(1, 12, 13)))),
            dataclasses.replace(named, mentions=("two threads of ranks 0 and 1 use one", "a process group of its own")),
        ),
        "hang-two-threads-of-one-rank-in-one-group": (hang(in_both(0, 13, 12), waiting(1, call(size=2))), one),
        # A hook of the backward pass runs in a thread of autograd's: that is in order with the pass.
        "hang-a-hook-beside-a-backward-pass": (
            hang(in_both(0, 13, 12, of_autograd), waiting(1, call(size=2))),
            dataclasses.replace(named, confidence="medium", mentions=("ranks came apart",)),
        ),
    }

"""Golden cases of a rank that has ended in good order, and of peers that wait for it and notice nothing."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    COMPUTING,
    INIT,
    LOCKED,
    call,
    done,
    elsewhere,
    hang,
    in_cpp,
    in_torch,
    library,
    recv,
    stack,
    waiting,
    world,
)
from scenes import LOOP, STEP, TRAIN, T, called_exit, case, exited, lost_peer, raised, shutting_down

from safelaunch.model import Case, Collective, Kernel, Location, ProcessGroup, RankFacts, Stack

UPLOAD = Location("/home/ada/project/upload.py", 12, "push")
CLEAN_UP = Location(TRAIN, 140, "clean_up")
PUSH = Location(TRAIN, 32, "push_halo")
SHUTDOWN = library("threading.py", 1583, "_shutdown")


def started(one: Collective) -> Collective:
    """A call that returned at once, and that nobody has waited for."""
    return dataclasses.replace(one, done=True, issued=True)


PUSHED = started(call("isend", 3, at=PUSH, peer=1, size=2))
PULLED = dataclasses.replace(recv(0, size=2), raised=True)

Golden = dict[str, tuple[Case, Expected]]


def ended(number: int, *calls: object, code: str | None = None) -> RankFacts:
    """A rank that has exited with 0 after these calls, by a call of exit or at the end of its script."""
    facts = dataclasses.replace(
        elsewhere(number, ASLEEP, STEP, before=calls),
        stack=None,
        stacks=(),
        kernel=None,
        recorded=None,
        beat_age_s=None,  # type: ignore[arg-type]
    )
    facts = called_exit(facts, code) if code is not None else shutting_down(facts)
    return exited(facts, 0, T + 0.05)


def on_signal(facts: RankFacts, name: str = "SIGTERM") -> RankFacts:
    """The same rank, whose call of exit a handler of that signal has made."""
    assert facts.exit_call is not None
    return dataclasses.replace(facts, exit_call=dataclasses.replace(facts.exit_call, location=CLEAN_UP, signal=name))


def lives_on(number: int, kernel: Kernel, *frames: Location, beside: tuple[Stack, ...] = ()) -> RankFacts:
    """A rank whose program has ended by an exception, and whose process has not."""
    facts = raised(elsewhere(number, kernel, *frames), "ValueError", "shard 17 is truncated", ended_after=None)
    return dataclasses.replace(facts, ended=True, shut_down=None, raised=False, stacks=(*facts.stacks, *beside))


def cases() -> Golden:
    """All of them by name."""
    part = ProcessGroup("3", (1, 2, 3))
    inner = call(seq=5, group="3", size=3)
    entering = call("init_process_group", 1, group="init", at=INIT)
    everyone = (ProcessGroup("init", (0, 1, 2, 3)),)
    late = elsewhere(2, ASLEEP, STEP)
    return {
        "hang-exited-of-the-world": (
            hang(*(waiting(n, call()) for n in range(3)), ended(3, done(call(), 11), code="0")),
            Expected("SL408", (3,), place(STEP), conclusive=True, mentions=("exited with 0",)),
        ),
        "hang-exited-of-a-subgroup": (
            hang(
                waiting(0, call()),
                *(waiting(n, inner) for n in (1, 2)),
                ended(3, done(inner, 4)),
                groups=(world(), part),
            ),
            Expected("SL408", (3,), conclusive=True, mentions=("exited with 0",)),
        ),
        "hang-exited-before-init": (
            hang(*(waiting(n, entering) for n in range(3)), ended(3, code="0"), groups=everyone),
            Expected("SL408", (3,), place(STEP), conclusive=True),
        ),
        # Elastic forwards no exit of 0: who looks for uneven data here looks in the wrong place.
        "hang-exited-in-a-signal-handler": (
            hang(*(waiting(n, call()) for n in range(3)), on_signal(ended(3, done(call(), 11), code="0"))),
            Expected(
                "SL408",
                (3,),
                place(CLEAN_UP),
                conclusive=True,
                mentions=("in its handler of SIGTERM", "see who sent SIGTERM"),
            ),
        ),
        "hang-exited-sender": (
            hang(ended(0), waiting(1, recv(0, size=2))),
            Expected("SL408", (0,), conclusive=True, mentions=("a peer",)),
        ),
        "hang-exited-before-backward": (
            hang(*(in_cpp(waiting(n, call(at=None))) for n in range(3)), ended(3, done(call(), 11))),
            Expected("SL408", (3,), conclusive=True),
        ),
        # Rank 0 left in good order, and nobody waits for it: the subgroup waits for rank 2.
        "hang-exited-and-not-missed": (
            hang(
                ended(0, done(call(), 11)),
                *(
                    waiting(n, inner) if n != 2 else dataclasses.replace(late, collectives=(done(inner, 4),))
                    for n in (1, 2, 3)
                ),
                groups=(world(), part),
            ),
            Expected("SL301", (2,), place(STEP), conclusive=False),
        ),
        # Both at once: the one that has gone can never come.
        "hang-exited-beside-a-late-rank": (
            hang(waiting(0, call()), waiting(1, call()), late, ended(3, done(call(), 11))),
            Expected("SL408", (3,), conclusive=True),
        ),
        # What is only started ends with the process.
        "exited-without-waiting-for-a-message": (
            case(ended(0, PUSHED), lost_peer(waiting(1, PULLED))),
            Expected(
                "SL408",
                (0,),
                place(PUSH),
                secondary=(1,),
                mentions=("without waiting for isend to rank 1 (train.py:32)", "rank 1 waited for in recv", "started"),
            ),
        ),
        "exited-without-waiting-for-a-collective": (
            case(
                ended(0, started(call(size=2))),
                lost_peer(waiting(1, dataclasses.replace(call(size=2), raised=True))),
            ),
            Expected(
                "SL408",
                (0,),
                place(LOOP),
                secondary=(1,),
                mentions=("without waiting for all_reduce #12", "rank 1 waited for in all_reduce #12"),
            ),
        ),
        # What it had started is not what its peer waits for; nor had it finished it.
        "exited-with-another-message-started": (
            case(ended(0, started(call("isend", 90, at=PUSH, peer=1, size=2))), lost_peer(waiting(1, PULLED))),
            Expected(
                "SL408",
                (0,),
                secondary=(1,),
                mentions=("while a peer still waited", "it had started, and not waited for, isend #90"),
            ),
        ),
        # The process of a rank that has failed is kept by what the program has left there.
        "exception-and-a-thread-lives-on": (
            case(
                waiting(0, call()),
                lives_on(1, LOCKED, SHUTDOWN, beside=(stack(4101, UPLOAD, thread=4199, name="uploader"),)),
                blamed=(1,),
            ),
            Expected("SL401", (1,), place(STEP), mentions=("went on after its exception", "its thread uploader")),
        ),
        "exception-and-torch-does-not-end": (
            case(
                waiting(0, call()),
                lives_on(1, COMPUTING, in_torch("destroy_process_group"), CLEAN_UP),
                blamed=(1,),
            ),
            Expected("SL401", (1,), place(STEP), mentions=("its peers or its GPU in destroy_process_group",)),
        ),
    }

"""Golden cases of ranks that have gone past a call which their peers make, or make one that nobody else does."""

from __future__ import annotations

import dataclasses

from expected import Expected
from hang_scenes import call, condition, done, hang, stack, waiting
from scenes import TRAIN

from safelaunch.model import Case, Collective, Location, RankFacts, SourceLine, WayOut

STEP, LABELLED, ENDS = (Location(TRAIN, line, "main") for line in (60, 62, 64))
ROUND = ((58, 66),)
STANDS_AT = {
    LABELLED: SourceLine(TRAIN, LABELLED.line, "dist.all_reduce(n)", ROUND, (condition(61, "labelled > 0"),)),
    ENDS: SourceLine(TRAIN, ENDS.line, "dist.broadcast(w, 0)", ROUND),
}


def stands(number: int, at: Location, before: Location = STEP) -> RankFacts:
    """A rank whose latest call was made at `before`, and which is in the one at `at`."""
    op = {LABELLED: "all_reduce", ENDS: "broadcast"}[at]
    made = done(call("all_reduce", 11, at=before, size=3))
    facts = waiting(number, made, call(op, 12, at=at, size=3))
    frames = stack(facts.pid, *next(iter(facts.stacks)).frames[:1], at)
    return dataclasses.replace(facts, stack=frames, stacks=(frames,))


def enqueued(number: int, *calls: Location) -> RankFacts:
    """The same with NCCL: the host has enqueued these, and waits in the line behind them."""
    facts = stands(number, calls[0])
    ops = {LABELLED: "all_reduce", ENDS: "broadcast"}
    waits = Location(TRAIN, 65, "main")
    frames = stack(facts.pid, waits)
    first, *others = (
        dataclasses.replace(call(ops[at], 12 + n, at=at, size=3), thread=facts.pid, state="enqueued")
        for n, at in enumerate(calls)
    )
    behind: list[Collective] = [dataclasses.replace(one, done=True, issued=True) for one in others]
    made = (facts.collectives[0], first, *behind)
    return dataclasses.replace(facts, collectives=made, recorded=(), stack=frames, stacks=(frames,))


def cut_short(way: WayOut, every: str = "step % eval_every == 0", since: int = 19) -> Case:
    """Rank 1 is in what is done every so many passes, rank 0 in what each pass does."""
    before = done(call("broadcast", 40 - since - 1, at=ENDS, size=2))

    def inside(number: int, op: str, at: Location) -> RankFacts:
        facts = waiting(number, before, call(op, 40, at=at, size=2))
        frames = stack(facts.pid, *next(iter(facts.stacks)).frames[:1], at)
        return dataclasses.replace(facts, stack=frames, stacks=(frames,))

    source = (
        SourceLine(TRAIN, STEP.line, "dist.all_reduce(g)", ROUND, exits=(way,)),
        SourceLine(TRAIN, ENDS.line, "dist.broadcast(w, 0)", ROUND, (condition(63, every),), exits=(way,)),
    )
    return hang(inside(0, "all_reduce", STEP), inside(1, "broadcast", ENDS), source=source)


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    skipped = "rank 1 skipped all_reduce #12 (train.py:62), which its peers make under `labelled > 0`"
    alone = "rank 1 alone makes all_reduce #12 (train.py:62) under `labelled > 0`; its peers went on to broadcast #12"
    source = tuple(STANDS_AT.values())
    one_has_skipped = [stands(n, ENDS if n == 1 else LABELLED) for n in range(3)]
    otherwise = dataclasses.replace(STANDS_AT[ENDS], conditions=(condition(61, "else: labelled > 0"),))
    inner = dataclasses.replace(STANDS_AT[ENDS], loops=(*ROUND, (63, 65)))
    named = Expected("SL302", (1,), (TRAIN, ENDS.line), conclusive=True)
    of_data = WayOut(59, "continue", ROUND[0][0], "", "not torch.isfinite(loss)")
    in_a_pass = Expected(
        "SL302",
        (1,),
        (TRAIN, ENDS.line),
        confidence="medium",
        conclusive=True,
        mentions=(
            "rank 1 skipped all_reduce (train.py:60) in a pass",
            "a pass skips that call by `continue` where `not torch.isfinite(loss)` holds",
            "each has made 19 collectives since the broadcast before",
            "unless rank 0 skipped broadcast",
        ),
    )
    nobody = dataclasses.replace(
        in_a_pass, culprit_ranks=(), location=(TRAIN, STEP.line), mentions=("which of them is wrong is not known",)
    )
    return {
        "hang-skipped-a-pass": (cut_short(of_data), in_a_pass),
        "hang-skipped-a-pass-by-an-exception": (
            cut_short(dataclasses.replace(of_data, handler="except ValueError", test="")),
            dataclasses.replace(in_a_pass, mentions=("`continue` in `except ValueError`", "meets an exception")),
        ),
        # All ranks skip these passes.
        "hang-skips-passes-that-are-counted": (
            cut_short(dataclasses.replace(of_data, test="step % 4 == 3")),
            nobody,
        ),
        # What is not counted may have come out otherwise on one of them.
        "hang-in-what-a-pass-does-by-its-data": (cut_short(of_data, "loss < best"), nobody),
        # Either of them may have cut short the pass in question.
        "hang-in-what-every-third-pass-does": (cut_short(of_data, since=2), nobody),
        "hang-skipped-a-call": (
            hang(*one_has_skipped, source=source),
            dataclasses.replace(named, mentions=(skipped,)),
        ),
        "hang-skipped-a-call-of-gpus": (
            hang(*(enqueued(n, *([ENDS] if n == 1 else [LABELLED, ENDS])) for n in range(3)), source=source),
            dataclasses.replace(named, conclusive=False, mentions=(skipped,)),
        ),
        "hang-makes-a-call-alone": (
            hang(*(stands(n, LABELLED if n == 1 else ENDS) for n in range(3)), source=source),
            dataclasses.replace(named, location=(TRAIN, LABELLED.line), mentions=(alone,)),
        ),
        # In its own branch it has not gone past that line.
        "hang-in-the-other-branch-of-a-call": (
            hang(*one_has_skipped, source=(STANDS_AT[LABELLED], otherwise)),
            dataclasses.replace(named, mentions=("while its peers make all_reduce #12",)),
        ),
        # A loop of its own may have begun before that line, in the turn before.
        "hang-in-another-loop-than-its-peers": (
            hang(*one_has_skipped, source=(STANDS_AT[LABELLED], inner)),
            dataclasses.replace(named, mentions=("while its peers make all_reduce #12",)),
        ),
    }

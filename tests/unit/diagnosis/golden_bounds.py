"""Golden cases of counted loops that a rank leaves before its peers, and of how far the source tells why."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import BARRIER, BEHIND_LOOP, INSIDE_LOOP, call, condition, done, hang, in_torch, stack, waiting
from scenes import LOOP, TRAIN

from safelaunch.model import Bound, Case, Location, RankFacts, SourceLine

LOOPING = (done(call(size=2), 10), done(call(size=2), 11), call(size=2))
RESUMES = Bound(50, "step", 'step = saved["step"]', "last is not None", 58)


def of_two(head: str, *bounds: Bound) -> Case:
    """Rank 1 has left a `while`, rank 0 is in it."""
    inside = dataclasses.replace(INSIDE_LOOP, conditions=(condition(58, head),), bounds=bounds)
    behind: RankFacts = waiting(1, *LOOPING[:2], call("barrier", at=BARRIER, size=2))
    return hang(waiting(0, *LOOPING), behind, source=(inside, BEHIND_LOOP))


EPOCHS = Location(TRAIN, 102, "main")
REPORT = Location(TRAIN, 90, "report")


def of_two_calls(text: str, *holds: tuple[int, str]) -> Case:
    """Rank 0 is in the loop of a function that a line calls, rank 1 in another function of that line."""

    def inside(number: int, op: str, at: Location) -> RankFacts:
        facts = waiting(number, *LOOPING[:2], call(op, at=at, size=2))
        frames = stack(facts.pid, in_torch(op), at, EPOCHS)
        return dataclasses.replace(facts, stack=frames, stacks=(frames,))

    source = (
        dataclasses.replace(INSIDE_LOOP, holds=holds),
        SourceLine(TRAIN, REPORT.line, "dist.all_gather(parts, mean)"),
        SourceLine(TRAIN, EPOCHS.line, text, loops=((101, 104),)),
    )
    return hang(
        inside(0, "all_reduce", dataclasses.replace(LOOP, function="train_epoch")),
        inside(1, "all_gather", REPORT),
        source=source,
    )


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    named = Expected("SL303", (1,), place(BARRIER), confidence="medium", conclusive=True)
    past = Expected(
        "SL303",
        (1,),
        place(REPORT),
        confidence="medium",
        conclusive=True,
        mentions=("rank 1 is past the loop in which peers still are", "only rank 0 is still in it"),
    )
    apart = Expected("SL302", (), place(LOOP), confidence="medium", conclusive=True, mentions=("is not known",))
    return {
        "hang-past-the-loop-of-what-the-same-line-calls": (of_two_calls("mean = report(train_epoch(model))"), past),
        "hang-past-a-loop-that-accumulates": (
            of_two_calls("mean = report(train_epoch(model))", (60, "nullcontext() if last else model.no_sync()")),
            dataclasses.replace(
                past,
                mentions=("depends on `with nullcontext() if last else model.no_sync()`", "the same number of passes"),
            ),
        ),
        # Which of the two comes first, or whether both are called, is not written there.
        "hang-in-one-of-two-functions-of-a-line": (of_two_calls("report(0) if last else train_epoch(model)"), apart),
        "hang-left-a-loop-whose-bound-is-set-below-a-condition": (
            of_two("step < most", RESUMES),
            dataclasses.replace(
                named,
                mentions=(
                    'where that loop begins and ends depends on `step`: `step = saved["step"]` stands below '
                    "`last is not None`",
                    "see why `step` differs from rank to rank",
                ),
            ),
        ),
        "hang-left-a-loop-that-counts": (
            of_two("step < most"),
            dataclasses.replace(named, mentions=("see why `step < most` comes out otherwise on one rank",)),
        ),
        "hang-left-a-loop-that-takes-data": (
            of_two("(batch := next(batches, None)) is not None"),
            dataclasses.replace(named, mentions=("look for uneven data",)),
        ),
    }

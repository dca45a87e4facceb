"""Golden cases of counted loops that a rank leaves before its peers, and of how far the source tells why."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import BARRIER, BEHIND_LOOP, INSIDE_LOOP, call, condition, done, hang, waiting

from safelaunch.model import Bound, Case, RankFacts

LOOPING = (done(call(size=2), 10), done(call(size=2), 11), call(size=2))
RESUMES = Bound(50, "step", 'step = saved["step"]', "last is not None", 58)


def of_two(head: str, *bounds: Bound) -> Case:
    """Rank 1 has left a `while`, rank 0 is in it."""
    inside = dataclasses.replace(INSIDE_LOOP, conditions=(condition(58, head),), bounds=bounds)
    behind: RankFacts = waiting(1, *LOOPING[:2], call("barrier", at=BARRIER, size=2))
    return hang(waiting(0, *LOOPING), behind, source=(inside, BEHIND_LOOP))


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    named = Expected("SL303", (1,), place(BARRIER), confidence="medium", conclusive=True)
    return {
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

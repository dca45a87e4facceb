"""What the headline of a hang says of a rank that deviates: what it did, and what its peers did instead."""

from __future__ import annotations

from safelaunch.diagnosis.blame.rank_guard import Guard
from safelaunch.diagnosis.blame.skipped import has_skipped
from safelaunch.diagnosis.blame.variants import Place, where_they_part
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.wording import call_at, under


def deviation(mine: Place, theirs: Place, others: int, guard: Guard | None, lines: Lines, *, how: bool = False) -> str:
    """`rank 1 skipped all_reduce #12 (train.py:71), which its peers make under `labelled > 0`; it is in barrier #12`.

    Args:
        mine: the rank that is named, and its call.
        theirs: one of its peers, and that one's call.
        others: how many peers there are.
        guard: the condition that one of the two calls stands below, if it is known.
        lines: the lines of the program that are known.
        how: whether the calls differ in their reduction alone, which is named then.
    """
    rank, peer = mine[0].rank, theirs[0].rank
    groups = mine[1].group != theirs[1].group
    callers = where_they_part(mine, theirs)
    own, other = (
        call_at(call, reduction=how, group=groups, caller=caller)
        for (_, call), caller in zip((mine, theirs), callers, strict=True)
    )
    of_own, of_other = (
        under(guard.condition) if guard is not None and guard.rank == one else "" for one in (rank, peer)
    )
    peers, verb = ("its peers", "") if others > 1 else (f"rank {peer}", "s")
    if has_skipped(mine, theirs, lines):
        return f"rank {rank} skipped {other}, which {peers} make{verb}{of_other}; it is in {own}"
    if has_skipped(theirs, mine, lines):
        return f"rank {rank} alone makes {own}{of_own}; {peers} went on to {other}"
    return f"rank {rank} makes {own}{of_own}, while {peers} make{verb} {other}{of_other}"

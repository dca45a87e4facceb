"""Ranks that get on while others hang: what they wait in ends by itself, and no chain of waits begins there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.model import RankFacts

MOVED_S = 1.0  # whose latest progress is younger gets on: the ranks are looked at one after another. An estimate
HANGS_S = 4.0  # ... where others have waited for longer than this; less than any hang is told of


def passing(waits: Iterable[Wait], ranks: Mapping[int, RankFacts]) -> frozenset[int]:
    """The ranks whose waits end by themselves: they have just made progress, and nobody waits for them, directly or
    through others, who has not. Such are the groups of a job in which another group hangs."""
    by_rank: dict[int, list[Wait]] = {}
    for wait in waits:
        by_rank.setdefault(wait.rank, []).append(wait)
    quiet = {rank: ranks[rank].quiet_s for rank in by_rank}
    moved = {rank for rank, seconds in quiet.items() if seconds is not None and seconds < MOVED_S}
    if not moved or max((seconds or 0.0 for seconds in quiet.values()), default=0.0) < HANGS_S:
        return frozenset()
    waited_for: set[int] = set()
    left = [rank for rank in by_rank if rank not in moved]
    while left:
        on = {rank for wait in by_rank[left.pop()] for rank in wait.on if rank in moved} - waited_for
        waited_for |= on
        left += on
    return frozenset(moved - waited_for)

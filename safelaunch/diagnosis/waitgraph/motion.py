"""Ranks that get on while others hang: what they wait in ends by itself, and no chain of waits begins there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.model import RankFacts

MOVED_S = 1.0  # whose latest progress is younger gets on: the ranks are looked at one after another. An estimate
HANGS_S = 4.0  # ... where others have waited for longer than this; less than any hang is told of


def passing(waits: Iterable[Wait], ranks: Mapping[int, RankFacts]) -> frozenset[int]:
    """The ranks whose waits end by themselves: they have just made progress, and nobody waits for them, directly or
    through others, who has not. Such are the groups of a job in which another group hangs. A rank of which that is not
    known is one of them where all that it waits for have just made progress."""
    by_rank: dict[int, list[Wait]] = {}
    for wait in waits:
        by_rank.setdefault(wait.rank, []).append(wait)
    if max((facts.quiet_s or 0.0 for facts in ranks.values()), default=0.0) < HANGS_S:
        return frozenset()

    def has_moved(rank: int) -> bool:
        seconds = ranks[rank].quiet_s
        return seconds is not None and seconds < MOVED_S

    moved = {
        rank
        for rank, own in by_rank.items()
        if has_moved(rank) or (ranks[rank].quiet_s is None and _all(has_moved, (on for wait in own for on in wait.on)))
    }
    waited_for: set[int] = set()
    left = [rank for rank in by_rank if rank not in moved]
    while left and moved:
        on = {rank for wait in by_rank[left.pop()] for rank in wait.on if rank in moved} - waited_for
        waited_for |= on
        left += on
    return frozenset(moved - waited_for)


def _all(holds: Callable[[int], bool], ranks: Iterable[int]) -> bool:
    """Whether it holds of all of these, who are one at least."""
    found = list(ranks)
    return bool(found) and all(map(holds, found))

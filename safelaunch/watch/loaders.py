"""Ranks that wait for their data for most of their time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from safelaunch.watch.pace import Bin, onset

LOADING = 0.5  # of the time of a step: most of it
LOADING_S = 0.01  # ... and so many seconds of each: a toy is no run
FED = 0.25  # below this share a rank does not wait for its loader


def hungry(bins: Sequence[Bin], start: int | None) -> dict[int, int]:
    """The ranks that wait for their loaders, and since which bin.

    Args:
        bins: of steps of one kind.
        start: the first of the bins that count as now; None where there are too few.
    """
    found: dict[int, int] = {}
    for rank in bins[-1].loading if start is not None else ():
        if not any(_starves(one, rank) for one in bins[-2:]):
            continue
        begun = onset([_starves(one, rank) for one in bins], start or 0)
        if begun is not None:
            found[rank] = begun
    return found


def some_are(waiting: Mapping[int, int], bins: Sequence[Bin], ranks: int) -> bool:
    """Whether some wait for their loaders, half of so many ranks at most, and the others do not."""
    if not waiting or len(waiting) > ranks / 2:
        return False
    others = [rank for rank in bins[-1].loading if rank not in waiting]
    return are_fed(others, bins[max(waiting.values()) :])


def are_fed(ranks: Iterable[int], bins: Sequence[Bin]) -> bool:
    """Whether none of these ranks waits for its loader in these bins."""
    return all(statistics.median(one.loading.get(rank, 0.0) for one in bins) < FED for rank in ranks)


def _starves(one: Bin, rank: int) -> bool:
    share = one.loading.get(rank, 0.0)
    return share >= LOADING and share * one.each >= LOADING_S

"""Ranks by number."""

from __future__ import annotations

from collections.abc import Iterable

MOST_RANKS = 1 << 18  # a rank above is none: the largest jobs that were told of have about 100,000


def runs(ranks: Iterable[int]) -> list[list[int]]:
    """Ranks in order, those that follow one another together: `[[0, 1, 2], [7]]`."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][-1] + 1:
            found[-1].append(rank)
        else:
            found.append([rank])
    return found

"""Who differs from the others. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)


@dataclass(frozen=True)
class Vote(Generic[V]):
    """Values, each with the ranks that have it, the most frequent first. `majority` tells that the first is that of
    more than half of at least three nodes: then the others are the odd ones."""

    groups: tuple[tuple[V, tuple[int, ...]], ...]
    majority: bool

    @property
    def unanimous(self) -> bool:
        return len(self.groups) < 2

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that are in the minority; empty where that cannot be told."""
        return tuple(sorted(rank for _, ranks in self.groups[1:] for rank in ranks)) if self.majority else ()


def vote(values: Mapping[int, V]) -> Vote[V]:
    """Count the values of all nodes, given by rank."""
    ranks: dict[V, list[int]] = {}
    for rank, value in sorted(values.items()):
        ranks.setdefault(value, []).append(rank)
    groups = sorted(((value, tuple(found)) for value, found in ranks.items()), key=lambda group: -len(group[1]))
    strict = len(values) >= 3 and len(groups) > 1 and 2 * len(groups[0][1]) > len(values)
    return Vote(tuple(groups), strict)

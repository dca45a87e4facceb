"""Who sits where at a meeting: each that comes has a seat of its own, and the seats are given ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from safelaunch.preflight.between.facts import Clash


@dataclass(frozen=True)
class Arrival:
    """One that came: `rank` is None where ranks are given by the meeting, `replaces` are the seats of those from the
    same host that are gone, in whose place it comes."""

    host: str
    rank: int | None = None
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True)
class RankAssignment:
    """The seat of each rank, who wanted a rank that another one has, and how many were replaced."""

    seats: Mapping[int, int]
    clashes: tuple[Clash, ...] = ()
    replaced: int = 0


def assign_ranks(arrivals: Mapping[int, Arrival], nodes: int) -> RankAssignment:
    """Give ranks to seats, in the order in which they came. Rank 0 and seat 0 are the one who holds the meeting."""
    gone = {seat for arrival in arrivals.values() for seat in arrival.replaces}
    seats: dict[int, int] = {}
    clashes: dict[int, Clash] = {}
    for seat in sorted(set(arrivals) - gone):
        arrival = arrivals[seat]
        rank = next(free for free in count() if free not in seats) if arrival.rank is None else arrival.rank
        if rank in seats:
            clashes.setdefault(rank, Clash(rank, (arrivals[seats[rank]].host, arrival.host)))
        elif rank < nodes:
            seats[rank] = seat
    return RankAssignment(seats, tuple(clashes.values()), len(gone & set(arrivals)))

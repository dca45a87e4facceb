"""Runs in: the probe of the node that holds the meeting. Waits until all nodes have come and said what they are."""

from __future__ import annotations

import dataclasses
import math
import time

from safelaunch.codec import to_json
from safelaunch.preflight.between.facts import Facts, Silent, Task
from safelaunch.preflight.between.rank_assignment import Arrival, RankAssignment, assign_ranks
from safelaunch.preflight.between.store import POLL_S, MeetingStore

# How long a node that came may take for its facts, which it has ready, and to say that it is still there.
FACTS_S = 5.0
# How often each node may be started again while the others wait: whoever reaches the port can take any number of seats.
TURNS = 16


class Gathering:
    """Who has come. Once all have, each is asked whether it is still there: one that ended while it waited may be
    started again, and is waited for like one that did not come yet.

    `rolls` counts the tasks posted.
    """

    def __init__(self, store: MeetingStore, nodes: int, mine: Facts) -> None:
        self.assigned: RankAssignment = assign_ranks({}, nodes)
        self.rolls = 0
        self._store = store
        self._count = nodes
        self._arrivals = {0: Arrival(mine.host, 0)}
        self._facts = {0: mine}
        self._came_at = {0: time.monotonic()}
        self._leaves_at: dict[int, float] = {}
        self._called: frozenset[int] = frozenset()
        self._called_at = -math.inf
        self._answered = {0}

    @property
    def nodes(self) -> tuple[Facts, ...]:
        """Those that said what they are and are still there, by rank."""
        silent = {silent.rank for silent in self.silent}
        ranks = [(rank, seat) for rank, seat in sorted(self.assigned.seats.items()) if rank not in silent]
        return tuple(dataclasses.replace(self._facts[seat], rank=rank) for rank, seat in ranks)

    @property
    def silent(self) -> tuple[Silent, ...]:
        """Those that came and then did not answer."""
        after = time.monotonic() - self._called_at
        return tuple(
            Silent(rank, self._arrivals[seat].host, "what it is", FACTS_S)
            if seat not in self._facts
            else Silent(rank, self._arrivals[seat].host, "a sign that it is still there", after)
            for rank, seat in sorted(self.assigned.seats.items())
            if seat not in self._facts or seat in self._called - self._answered
        )

    @property
    def until(self) -> float:
        """When the first of them has to leave, on the monotonic clock."""
        return min((self._leaves_at.get(seat, math.inf) for seat in self.assigned.seats.values()), default=math.inf)

    def wait(self, until: float) -> None:
        """Wait for all, until then at the latest; for those that came and are silent, a little longer."""
        while not self._complete() and time.monotonic() < max(until, self._called_at + FACTS_S):
            time.sleep(POLL_S)

    def _complete(self) -> bool:
        """Whether there is nobody to wait for any more."""
        now = time.monotonic()
        seats = set(range(min(self._store.add("seats", 0), self._count * TURNS) + 1))
        for seat, news in self._store.collect(Arrival, "came", seats - set(self._arrivals)).items():
            self._arrivals[seat], self._came_at[seat] = news, now
        for seat, facts in self._store.collect(Facts, "facts", set(self._arrivals) - set(self._facts)).items():
            self._facts[seat] = facts
            self._leaves_at[seat] = now + facts.left_s
        self.assigned = assign_ranks(self._arrivals, self._count)
        taken = frozenset(self.assigned.seats.values())
        if len(taken) + len(self.assigned.clashes) < self._count:
            return False
        known = taken & set(self._facts)
        return all(now > self._came_at[seat] + FACTS_S for seat in taken - known) and self._all_there(known)

    def _all_there(self, seats: frozenset[int]) -> bool:
        """Call the roll, anew for every set of seats."""
        if seats != self._called:
            self._store.post(f"task/{self.rolls}", to_json(Task("roll")))
            self._called, self._called_at, self._answered = seats, time.monotonic(), {0}
            self.rolls += 1
        self._answered |= set(self._store.collect(bool, f"there/{self.rolls - 1}", seats - self._answered))
        return seats <= self._answered

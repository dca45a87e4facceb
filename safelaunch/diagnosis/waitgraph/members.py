"""Who is in which group, as far as the case tells."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.diagnosis.waitgraph.record import WORLD
from safelaunch.model import Case, Collective, RankFacts


class Partners:
    """The members of a group: those whose evidence is there, and those of which nothing is known."""

    def __init__(self, members: tuple[int, ...], ranks: Mapping[int, RankFacts]):
        self.all = members
        self.present = tuple(rank for rank in members if rank in ranks)
        self._absent = tuple(rank for rank in members if rank not in ranks)
        self._away: dict[tuple[int, ...], tuple[int, ...]] = {(): self._absent}

    def away(self, unclear: tuple[int, ...]) -> tuple[int, ...]:
        """The absent ones and some of the others."""
        if unclear not in self._away:
            self._away[unclear] = (*self._absent, *unclear)
        return self._away[unclear]


class Members:
    """Who is in which group, each looked up once: a case may tell of 250,000 ranks that are not in it."""

    def __init__(self, case: Case, ranks: Mapping[int, RankFacts]):
        self._groups = {group.name: group.ranks for group in case.groups}
        self._size, self._ranks = case.world_size, ranks
        self._known: dict[str | None, Partners] = {}

    def of(self, call: Collective) -> Partners:
        """The members that a call needs; none where nobody knows whom it waits for."""
        if call.is_message:  # from anyone: who should have sent is not known
            return Partners((call.peer,) if call.peer is not None else (), self._ranks)
        # Without a record of the group, its size tells whether it is the world, and so does its name in torch.
        world = call.group not in self._groups and (call.group_size == self._size or call.group == WORLD)
        name = None if world else call.group
        if name not in self._known:
            members = self._groups.get(call.group, ()) if not world else tuple(range(self._size))
            self._known[name] = Partners(members, self._ranks)
        return self._known[name]

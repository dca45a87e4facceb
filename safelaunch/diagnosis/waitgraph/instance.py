"""One collective of a group, or one message, as all who wait in it have it in common: who has come, and who has not.

Ranks that wait at the same number of the same group share one instance, so that the cost of a graph grows with the
number of ranks, and not with the pairs of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from safelaunch.diagnosis.waitgraph.calls import (
    absence_is_proof,
    call_at_number,
    call_signature,
    differs,
    has_left,
    main_thread,
    matching_message,
    stopped,
)
from safelaunch.diagnosis.waitgraph.counters import Table, idle, is_counted_only
from safelaunch.diagnosis.waitgraph.members import Members, Partners
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.model import Collective, GroupProgress, RankFacts


class State(Enum):
    """What a member has to do with a call that others wait in."""

    CAME = auto()
    COUNTED = auto()  # it has come by its counters, and no entry shows with what
    LATE = auto()
    GONE = auto()  # it can never come
    STOPPED = auto()
    UNCLEAR = auto()  # nothing shows whether it has come


@dataclass(frozen=True)
class Instance:
    """One collective or message.

    Args:
        call: that of the first rank that waits in it.
        partners: its members.
        by_state: the members whose evidence is there, by their state.
        variants: those who have come, by what they came with.
        waits: of the ranks that wait in it.
    """

    call: Collective
    partners: Partners
    by_state: Mapping[State, tuple[int, ...]]
    variants: Mapping[object, list[int]]
    waits: list[Wait] = field(default_factory=list)

    @property
    def group(self) -> str:
        """Whose collective it is."""
        return self.call.group

    @property
    def missing(self) -> set[int]:
        """Members of which nobody can say that they have come."""
        states = (State.LATE, State.GONE, State.STOPPED, State.UNCLEAR)
        return {rank for state in states for rank in self.by_state[state]}.union(self.partners.away(()))


class Instances:
    """All that ranks of a case wait in."""

    def __init__(self, ranks: Mapping[int, RankFacts], members: Members, progress: Table) -> None:
        self._ranks = ranks
        self._members = members
        self._progress = progress
        self.waits: list[Wait] = []
        self._by_key: dict[object, Instance] = {}
        self._differing: dict[tuple[object, object], tuple[int, ...]] = {}

    def add(self, facts: RankFacts, call: Collective) -> None:
        """A rank waits in a call."""
        key = _key(facts, call)
        if key not in self._by_key:
            self._by_key[key] = self._new(facts, call)
        instance = self._by_key[key]
        wait = self._wait(facts, call, key, instance)
        instance.waits.append(wait)
        self.waits.append(wait)

    def leave_out(self, ranks: Iterable[int]) -> None:
        """Forget what these ranks wait in."""
        left_out = set(ranks)
        self.waits = [wait for wait in self.waits if wait.rank not in left_out]
        for instance in self._by_key.values():
            instance.waits[:] = [wait for wait in instance.waits if wait.rank not in left_out]

    def __iter__(self) -> Iterator[Instance]:
        return (instance for instance in self._by_key.values() if instance.waits)

    def _new(self, facts: RankFacts, call: Collective) -> Instance:
        found: dict[State, list[int]] = {state: [] for state in State}
        variants: dict[object, list[int]] = {}
        partners = self._members.of(call)
        counted = self._progress.get(call.group, {})
        for rank in partners.present:
            if call.is_message and rank == facts.rank:
                continue
            other = self._ranks[rank]
            state = _state(other, call, facts.rank, counted.get(rank))
            found[state].append(rank)
            if state is State.CAME and not call.is_message:
                variants.setdefault(call_signature(other, call), []).append(rank)
        return Instance(call, partners, {state: tuple(ranks) for state, ranks in found.items()}, variants)

    def _wait(self, facts: RankFacts, call: Collective, key: object, instance: Instance) -> Wait:
        own, states = facts.rank, instance.by_state
        unclear = states[State.UNCLEAR]
        away = instance.partners.away(unclear)

        def without(found: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(rank for rank in found if rank != own) if own in found else found

        return Wait(
            own,
            call.thread or main_thread(facts),
            call,
            on=without(states[State.LATE]),
            differing=without(self._others(facts, call, key, instance)),
            gone=without(states[State.GONE]),
            stopped=without(states[State.STOPPED]),
            away=without(away) if own in unclear else away,
            partners=instance.partners.all,
        )

    def _others(self, facts: RankFacts, call: Collective, key: object, instance: Instance) -> tuple[int, ...]:
        """Who has come with something else than this rank, and all who came with the same."""
        own = key, call_signature(facts, call)
        if own not in self._differing:
            others = [ranks for ranks in instance.variants.values() if differs(facts, self._ranks[ranks[0]], call)]
            different = {rank for ranks in others for rank in ranks}
            came = instance.by_state[State.CAME]
            self._differing[own] = tuple(rank for rank in came if rank in different) if different else ()
        return self._differing[own]


def _key(facts: RankFacts, call: Collective) -> object:
    """What decides who has come, and who has not: a message is a meeting of its own."""
    whose = (facts.rank, call.op, call.peer) if call.is_message else ()
    return (call.group, call.seq, bool(call.thread), call.group_size, whose)


def _state(facts: RankFacts, call: Collective, rank: int, own: GroupProgress | None) -> State:
    """What a member has to do with a call of the rank `rank`; `own` are its counters in that group."""
    came = matching_message(facts, call, rank) if call.is_message else call_at_number(facts, call)
    if came is None and (facts.exit is not None or (has_left(facts, call.group) and absence_is_proof(facts, call))):
        return State.GONE
    if facts.exit is None and stopped(facts):
        return State.STOPPED
    if came is not None:
        return State.CAME
    if _has_come(facts, call, own):
        return State.COUNTED
    return State.LATE if _is_late(facts, call, own) else State.UNCLEAR


def _has_come(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether the counters of a rank show that it has completed a collective, or is at it: entries may be lost."""
    if own is None or call.is_message:
        return False
    return call.seq <= own.completed + is_counted_only(facts)


def _is_late(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether it is known that a rank has not come to a call."""
    if idle(facts) if call.is_message else own is not None:
        return True  # who has nothing under way neither sends nor receives
    return absence_is_proof(facts, call) and not is_counted_only(facts)

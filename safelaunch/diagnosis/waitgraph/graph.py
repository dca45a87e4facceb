"""Who waits for whom: the graph on which the hang rules stand.

A node is a thread of a rank: one that helps in a background group does not excuse a main thread that sleeps. A wait is
a call that has not come back, and its edges go to the members of the group that have not come to the same number. No
votes are counted here: whoever everybody waits for, and who waits for nobody, stands at the end of every chain.

Ranks that wait at the same number of the same group share one meeting, and the graph is built from meetings: its cost
grows with the number of ranks, not with the pairs of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.waitgraph import store
from safelaunch.diagnosis.waitgraph.calls import (
    alive,
    answer,
    arrival,
    blocked_in,
    differs,
    has_left,
    is_under_way,
    known,
    main_thread,
    responsible,
    stopped,
    word,
)
from safelaunch.diagnosis.waitgraph.counters import Table, comparable, idle, is_counted_only, untold
from safelaunch.diagnosis.waitgraph.edges import EDGES
from safelaunch.diagnosis.waitgraph.motion import passing
from safelaunch.diagnosis.waitgraph.record import WORLD
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Node, Wait
from safelaunch.model import Case, Collective, GroupProgress, RankFacts


@dataclass(frozen=True)
class Graph:
    """All waits of a case. `sinks` are (rank, thread) pairs that others wait for and that wait for nobody in a call;
    `ends` are those of them that wait for no other rank by other means either, none where that cannot be known; `cycle`
    are ranks that wait for one another in calls."""

    waits: tuple[Wait, ...] = ()
    sinks: tuple[Node, ...] = ()
    cycle: tuple[int, ...] = ()
    external: tuple[ExternalWait, ...] = ()
    ends: tuple[Node, ...] = ()

    @cached_property
    def heads(self) -> tuple[Wait, ...]:
        """The waits without those that stand behind another one on the same device."""
        first = earliest(self.waits)
        return tuple(wait for wait in self.waits if first.get(wait.rank, wait) is wait or not is_under_way(wait.call))

    def waiting_for(self, ranks: Iterable[int]) -> tuple[Wait, ...]:
        """Waits that one of these ranks blocks itself."""
        wanted = set(ranks)
        return tuple(wait for wait in self.waits if wait.rank not in wanted and not wanted.isdisjoint(wait.blockers))

    def wait_for(self, ranks: Iterable[int], kind: Kind) -> bool:
        """Whether each of these ranks waits for something of this kind."""
        return set(ranks) <= {wait.rank for wait in self.external if wait.resource.kind is kind}

    def of(self, rank: int) -> Wait | None:
        """The wait of a rank, if it waits."""
        return next((wait for wait in self.waits if wait.rank == rank), None)


class _Partners:
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


class _Members:
    """Who is in which group, each looked up once: a case may tell of 250,000 ranks that are not in it."""

    def __init__(self, case: Case, ranks: Mapping[int, RankFacts]):
        self._groups = {group.name: group.ranks for group in case.groups}
        self._size, self._ranks = case.world_size, ranks
        self._known: dict[str | None, _Partners] = {}

    def of(self, call: Collective) -> _Partners:
        """The members that a call needs; none where nobody knows whom it waits for."""
        if call.is_message:  # from anyone: who should have sent is not known
            return _Partners((call.peer,) if call.peer is not None else (), self._ranks)
        # Without a record of the group, its size tells whether it is the world, and so does its name in torch.
        world = call.group not in self._groups and (call.group_size == self._size or call.group == WORLD)
        name = None if world else call.group
        if name not in self._known:
            members = self._groups.get(call.group, ()) if not world else tuple(range(self._size))
            self._known[name] = _Partners(members, self._ranks)
        return self._known[name]


@dataclass(frozen=True)
class _Meeting:
    """What all who wait at one number of one group have in common. `came` are those who are there, and `sides` what
    each of them came with; `unclear` are those of `away` whose evidence is there."""

    on: tuple[int, ...]
    gone: tuple[int, ...]
    stopped: tuple[int, ...]
    away: tuple[int, ...]
    partners: tuple[int, ...]
    came: tuple[int, ...]
    unclear: tuple[int, ...]
    sides: dict[object, list[int]]


def build(case: Case) -> Graph:
    """The graph of a case."""
    ranks = {facts.rank: facts for facts in case.ranks}
    meetings: dict[object, tuple[_Meeting, list[Wait]]] = {}
    others: dict[tuple[object, object], tuple[int, ...]] = {}
    progress = comparable(case)
    known_members = _Members(case, ranks)
    waits: list[Wait] = []
    for facts in case.ranks:
        for call in (blocked_in(facts) or untold(facts, progress)) if alive(facts) else ():
            key = _key(facts, call)
            if key not in meetings:
                meetings[key] = (_meeting(facts, call, ranks, known_members, progress), [])
            meeting, there = meetings[key]
            wait = _wait(facts, call, meeting, (key, word(facts, call)), others, ranks)
            waits.append(wait)
            there.append(wait)
    ending = passing(waits, ranks)
    if ending:
        waits = [wait for wait in waits if wait.rank not in ending]
        meetings = {
            key: (meeting, [w for w in there if w.rank not in ending]) for key, (meeting, there) in meetings.items()
        }
        meetings = {key: one for key, one in meetings.items() if one[1]}
    by_node: dict[Node, list[Wait]] = {}
    for wait in waits:
        by_node.setdefault((wait.rank, wait.thread), []).append(wait)
    first = earliest(waits)
    sinks: set[Node] = set()
    edges: dict[object, list[object]] = {id(wait): [key] for key, (_, there) in meetings.items() for wait in there}
    for key, (meeting, there) in meetings.items():
        edges[key] = []
        group = there[0].call.group
        waiting = {wait.rank for wait in there}
        for rank in meeting.on:
            if waiting == {rank}:
                continue  # nobody waits for itself
            node = (rank, responsible(ranks[rank], group))
            following = by_node.get(node)
            if following is None:
                sinks.add(node)
            else:
                edges[key] += [id(wait) for wait in following]
        for rank in (*meeting.gone, *meeting.stopped):
            if waiting != {rank}:
                sinks.add((rank, responsible(ranks[rank], group)))
        edges[key] += [id(wait) for wait in _before(meeting, there, first, ranks)]
    circles = _circles(edges)
    cyclic = {wait.rank for key, (_, there) in meetings.items() for wait in there if circles[id(wait)] == circles[key]}
    external = tuple(wait for edge in EDGES for wait in edge(case))
    last = tuple(sorted(sinks))
    return Graph(tuple(waits), last, tuple(sorted(cyclic)), external, _ends(last, external, ranks, case.world_size))


def _ends(
    sinks: tuple[Node, ...], external: Iterable[ExternalWait], ranks: Mapping[int, RankFacts], size: int
) -> tuple[Node, ...]:
    """Of the ends of all chains those that wait for no other rank in the store, for a lock or at a pipe; all, where
    every one of them does. A rank of which the kernel has said nothing, at a line of the program itself, may wait for
    another in that way: among such ranks there is no end; nor where nothing is known of the rank at the other end, or
    of whoever waits there for input, too."""
    own: dict[int, list[ExternalWait]] = {}
    for wait in external:
        if wait.resource.kind.has or wait.resource.kind is store.KEY:
            own.setdefault(wait.rank, []).append(wait)
    late = {rank for rank, _ in sinks}

    def goes_on(rank: int) -> bool:
        return any(wait.resource.kind is store.KEY or wait.on in late for wait in own.get(rank, ()))

    def unseen(facts: RankFacts) -> bool:
        other = next((ranks[wait.on] for wait in own.get(facts.rank, ()) if wait.on is not None), None)
        if other is not None:
            return not (other.stacks or other.stack or other.kernel)
        if len(ranks) < size and any(wait.asked for wait in own.get(facts.rank, ())):
            return True
        inner = facts.stack.frames[0] if facts.stack is not None and facts.stack.frames else None
        return facts.kernel is None and not facts.phases and inner is not None and is_user_code(inner)

    found = tuple(sink for sink in sinks if not goes_on(sink[0])) or sinks
    return () if any(unseen(ranks[rank]) for rank, _ in found) else found


def earliest(waits: Iterable[Wait]) -> dict[int, Wait]:
    """What the device of each rank is in: the call under way there that was enqueued first."""
    found: dict[int, Wait] = {}
    for wait in sorted((wait for wait in waits if is_under_way(wait.call)), key=lambda wait: wait.call.t):
        found.setdefault(wait.rank, wait)
    return found


def _before(
    meeting: _Meeting, there: list[Wait], first: dict[int, Wait], ranks: Mapping[int, RankFacts]
) -> Iterator[Wait]:
    """What the devices of those wait in who have enqueued their part, and have not come to it: whatever was enqueued
    before it."""
    call = there[0].call
    if call.is_message:
        missing = {*meeting.on, *meeting.gone, *meeting.stopped, *meeting.away}
        for rank in (set(meeting.partners) - missing) & first.keys():
            own = answer(ranks[rank], call, there[0].rank)
            # One that has ended there waits for nothing: what is pending here is the batch that this one is in.
            if own is not None and is_under_way(own) and not _together(ranks[rank], first[rank].call, own):
                yield first[rank]
    else:
        yield from (first[wait.rank] for wait in there if first.get(wait.rank, wait) is not wait)


def _together(facts: RankFacts, first: Collective, call: Collective) -> bool:
    """Whether a device comes to both of a rank's calls at once: they are one, or in one batch of messages. A batch
    seldom holds two to, or from, one peer: where there are two, the second may be in the next batch."""
    between = [own for own in facts.collectives if first.t <= own.t <= call.t]
    ways = {("send" in own.op, own.peer) for own in between}
    return first.t == call.t or (len(ways) == len(between) > 0 and all(own.is_batched for own in between))


def _key(facts: RankFacts, call: Collective) -> object:
    """What decides who has come, and who has not: a message is a meeting of its own."""
    whose = (facts.rank, call.op, call.peer) if call.is_message else ()
    return (call.group, call.seq, bool(call.thread), call.group_size, whose)


def _meeting(
    facts: RankFacts,
    call: Collective,
    ranks: dict[int, RankFacts],
    members: _Members,
    progress: Table,
) -> _Meeting:
    on: list[int] = []
    gone: list[int] = []
    held: list[int] = []
    unclear: list[int] = []
    there: list[int] = []
    sides: dict[object, list[int]] = {}
    partners = members.of(call)
    counted = progress.get(call.group, {})
    for rank in partners.present:
        other = ranks[rank]
        if call.is_message and rank == facts.rank:
            continue
        came = answer(other, call, facts.rank) if call.is_message else arrival(other, call)
        if came is None and (other.exit is not None or (has_left(other, call.group) and known(other, call))):
            gone.append(rank)
        elif other.exit is None and stopped(other):
            held.append(rank)
        elif came is None and not _has_come(other, call, counted.get(rank)):
            (on if _is_late(other, call, counted.get(rank)) else unclear).append(rank)
        elif came is None:
            continue
        elif not call.is_message:
            there.append(rank)
            sides.setdefault(word(other, call), []).append(rank)
    away, maybe = partners.away(tuple(unclear)), tuple(unclear)
    return _Meeting(tuple(on), tuple(gone), tuple(held), away, partners.all, tuple(there), maybe, sides)


def _has_come(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether the counters of a rank show that it has completed a collective, or is at it: entries may be lost."""
    if own is None or call.is_message:
        return False
    return call.seq <= own.completed + is_counted_only(facts)


def _is_late(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether it is known that a rank has not come to a call."""
    if idle(facts) if call.is_message else own is not None:
        return True  # who has nothing under way neither sends nor receives
    return known(facts, call) and not is_counted_only(facts)


def _wait(
    facts: RankFacts,
    call: Collective,
    meeting: _Meeting,
    side: tuple[object, object],
    others: dict[tuple[object, object], tuple[int, ...]],
    ranks: dict[int, RankFacts],
) -> Wait:
    if side not in others:
        different: set[int] = set()
        for ranks_there in meeting.sides.values():
            if differs(facts, ranks[ranks_there[0]], call):
                different.update(ranks_there)
        others[side] = tuple(rank for rank in meeting.came if rank in different) if different else ()
    own = facts.rank

    def without(found: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(rank for rank in found if rank != own) if own in found else found

    return Wait(
        own,
        call.thread or main_thread(facts),
        call,
        without(meeting.on),
        without(others[side]),
        without(meeting.gone),
        without(meeting.stopped),
        without(meeting.away) if own in meeting.unclear else meeting.away,
        meeting.partners,
    )


def _circles(edges: dict[object, list[object]]) -> dict[object, int]:
    """For each node a number, shared with those that it reaches and that reach it (Tarjan, without recursion)."""
    number: dict[object, int] = {}
    low: dict[object, int] = {}
    circle: dict[object, int] = {}
    open_: list[object] = []
    for start in edges:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        open_.append(start)
        path = [(start, iter(edges[start]))]
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    while open_[-1] != node:
                        circle[open_.pop()] = number[node]
                    circle[open_.pop()] = number[node]
            elif following not in number:
                number[following] = low[following] = len(number)
                open_.append(following)
                path.append((following, iter(edges[following])))
            elif following not in circle:
                low[node] = min(low[node], number[following])
    return circle

"""Who waits for whom: the graph on which the hang rules stand.

A node is a thread of a rank: one that helps in a background group does not excuse a main thread that sleeps. A wait is
a call that has not come back, and its edges go to the members of the group that have not come to the same number. No
votes are counted here: whoever everybody waits for, and who waits for nobody, stands at the end of every chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.waitgraph.calls import alive, blocked_in, is_under_way, matching_message, responsible
from safelaunch.diagnosis.waitgraph.components import strongly_connected
from safelaunch.diagnosis.waitgraph.counters import comparable, untold
from safelaunch.diagnosis.waitgraph.edges import EDGES
from safelaunch.diagnosis.waitgraph.instance import Instance, Instances, State
from safelaunch.diagnosis.waitgraph.members import Members
from safelaunch.diagnosis.waitgraph.motion import passing
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Node, Wait
from safelaunch.model import Case, Collective, RankFacts


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


def build(case: Case) -> Graph:
    """The graph of a case."""
    ranks = {facts.rank: facts for facts in case.ranks}
    progress = comparable(case)
    found = Instances(ranks, Members(case, ranks), progress)
    for facts in filter(alive, case.ranks):
        for call in blocked_in(facts) or untold(facts, progress):
            found.add(facts, call)
    found.leave_out(passing(found.waits, ranks))
    edges, sinks = _edges(found, ranks)
    components = strongly_connected(edges)
    cycle = {wait.rank for each in found for wait in each.waits if components[id(wait)] == components[id(each)]}
    external = tuple(wait for edge in EDGES for wait in edge(case))
    ends = _ends(sinks, external, ranks, case.world_size)
    return Graph(tuple(found.waits), sinks, tuple(sorted(cycle)), external, ends)


def _edges(found: Instances, ranks: Mapping[int, RankFacts]) -> tuple[dict[int, list[int]], tuple[Node, ...]]:
    """From each wait to its instance, and from each instance to the waits that it cannot end before, by their ids; and
    the threads at the ends of all chains, which wait for nobody."""
    by_node: dict[Node, list[Wait]] = {}
    for wait in found.waits:
        by_node.setdefault((wait.rank, wait.thread), []).append(wait)
    first = earliest(found.waits)
    sinks: set[Node] = set()
    edges: dict[int, list[int]] = {id(wait): [id(each)] for each in found for wait in each.waits}
    for each in found:
        waiting = {wait.rank for wait in each.waits}
        late, *others = (
            [(rank, responsible(ranks[rank], each.group)) for rank in each.by_state[state] if waiting != {rank}]
            for state in (State.LATE, State.GONE, State.STOPPED)
        )  # nobody waits for itself
        sinks.update(node for node in late if node not in by_node)
        sinks.update(*others)
        following = [wait for node in late for wait in by_node.get(node, ())]
        edges[id(each)] = [id(wait) for wait in (*following, *_before(each, first, ranks))]
    return edges, tuple(sorted(sinks))


def _ends(
    sinks: tuple[Node, ...], external: Iterable[ExternalWait], ranks: Mapping[int, RankFacts], size: int
) -> tuple[Node, ...]:
    """Of the ends of all chains those that wait for no other rank in the store, for a lock or at a pipe; all, where
    every one of them does. A rank of which the kernel has said nothing, at a line of the program itself, may wait for
    another in that way: among such ranks there is no end; nor where nothing is known of the rank at the other end, of
    whoever waits there for input, too, or of who has what it waits for."""
    own: dict[int, list[ExternalWait]] = {}
    for wait in external:
        if wait.resource.kind.leads_on:
            own.setdefault(wait.rank, []).append(wait)
    late = {rank for rank, _ in sinks}

    def goes_on(rank: int) -> bool:
        return any(wait.resource.kind.owner == "never" or wait.on in late for wait in own.get(rank, ()))

    def unseen(facts: RankFacts) -> bool:
        other = next((ranks[wait.on] for wait in own.get(facts.rank, ()) if wait.on is not None), None)
        if other is not None:
            return not (other.stacks or other.stack or other.kernel)
        if any(wait.resource.kind.owner == "sometimes" for wait in own.get(facts.rank, ())):
            return True
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


def _before(instance: Instance, first: Mapping[int, Wait], ranks: Mapping[int, RankFacts]) -> Iterator[Wait]:
    """What the devices of those wait in who have enqueued their part, and have not come to it: whatever was enqueued
    before it."""
    call, there = instance.call, instance.waits
    if not call.is_message:
        yield from (first[wait.rank] for wait in there if first.get(wait.rank, wait) is not wait)
        return
    for rank in (set(instance.partners.all) - instance.missing) & first.keys():
        own = matching_message(ranks[rank], call, there[0].rank)
        # One that has ended there waits for nothing: what is pending here is the batch that this one is in.
        if own is not None and is_under_way(own) and not _together(ranks[rank], first[rank].call, own):
            yield first[rank]


def _together(facts: RankFacts, first: Collective, call: Collective) -> bool:
    """Whether a device comes to both of a rank's calls at once: they are one, or in one batch of messages. A batch
    seldom holds two to, or from, one peer: where there are two, the second may be in the next batch."""
    between = [own for own in facts.collectives if first.t <= own.t <= call.t]
    ways = {("send" in own.op, own.peer) for own in between}
    return first.t == call.t or (len(ways) == len(between) > 0 and all(own.is_batched for own in between))

"""Ranks that wait for one another in a cycle: who of them is not where the others are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.blame import history, loop_exit, rank_guard, uneven_data
from safelaunch.diagnosis.blame.deviation import Deviation
from safelaunch.diagnosis.blame.loop_exit import UNEVEN, LoopExit, has_left, stays_alone
from safelaunch.diagnosis.blame.rank_guard import Guard
from safelaunch.diagnosis.blame.variants import Place, Variant
from safelaunch.diagnosis.blame.ways_out import Ways, ways_out
from safelaunch.diagnosis.hang import group_members, messages
from safelaunch.diagnosis.hang.headlines import deviation
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import MAKING, canonical, frames_at, is_irreversible, threads_inside
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait, away_of
from safelaunch.diagnosis.wording import OUT_OF_THE_CONDITION, call_at, names
from safelaunch.model import Case, Confidence, Verdict

SHOWN = 3  # calls that a headline has room for


@dataclass(frozen=True)
class Cycle:
    """The ranks of a cycle, and what each waits in."""

    view: View

    @property
    def graph(self) -> Graph:
        return self.view.graph

    @cached_property
    def waits(self) -> list[Wait]:
        """Those of its ranks, without what stands behind another call on the same device."""
        return [wait for wait in self.graph.heads if wait.rank in self.graph.cycle]

    def place(self, wait: Wait) -> Place:
        """A rank of it, and the call that it waits in."""
        return self.view.by_rank[wait.rank], wait.call

    @cached_property
    def unseen(self) -> set[int]:
        """Ranks that are waited for, and of which nothing is known: they must not be able to turn a vote."""
        return away_of(self.graph.waits)

    @cached_property
    def making(self) -> list[str]:
        """The groups that ranks are about to make."""
        return [wait.call.group for wait in self.graph.heads if wait.call.group.startswith(f"{MAKING} #")]

    @cached_property
    def groups(self) -> set[str]:
        """Whose members are in the cycle."""
        groups = {wait.call.group for wait in self.waits}
        # All ranks make each group, whoever is to belong to it: one that does so alone is the outlier.
        return groups - ({self.making[0]} if len(self.making) == 1 else set())

    @cached_property
    def sites(self) -> dict[tuple[str, int, str], list[int]]:
        """Who waits where. Those who wait for the cycle from outside have a vote too, if all of it concerns them."""
        members = [set(group.ranks) for group in self.view.case.groups if group.name in self.groups]
        sites: dict[tuple[str, int, str], list[int]] = {}
        for wait in self.graph.heads:
            if all(wait.rank in those for those in members):
                call = wait.call
                what = f"rank {wait.rank}" if call.is_message else canonical(call.op)
                sites.setdefault((call.group, call.seq, what), []).append(wait.rank)
        return sites

    @cached_property
    def between(self) -> messages.Between | None:
        """The stage whose numbers of messages are not those of the stages beside it."""
        return messages.between_two(self.view) if self.in_messages and not self.unseen else None

    @cached_property
    def in_messages(self) -> bool:
        """Whether a rank of it waits for a message."""
        return any(wait.call.is_message for wait in self.waits)


@dataclass(frozen=True)
class Blame:
    """Who deviates, perhaps from what it has always done, or by a condition that it alone stands below."""

    ranks: tuple[int, ...] = ()
    deviation: Deviation | None = None
    bypassed: bool = False


def left_between_groups(view: View) -> Verdict | None:
    """Ranks of several groups wait for one another in a circle, and one has left the loop in which the others still
    are.

    How it was concluded: one rank waits in a collective behind the loop, its peers in groups inside it. Stacks and
    source show who stands behind the loop. Stages of a pipeline leave their loops one after the other, by design. So a
    stage is named only if another still sends to it, and two at least are inside their loops, and with less confidence.

    What to do: all ranks must make the same number of steps. Decide together when to stop (all_reduce the decision), or
    use `drop_last`, DistributedSampler or DDP's `join()`.
    """
    loop_left = _exit_of_cycle(view)
    if loop_left is None:
        return None
    graph, ranks, named = view.graph, view.by_rank, loop_left.ranks
    first = next(wait for wait in graph.waits if wait.rank in named)
    peer = next(wait for wait in graph.waits if wait.rank not in named)
    lonely = stays_alone({wait.rank for wait in graph.waits}, named)
    by_messages = any(wait.call.is_message for wait in graph.waits)
    mine, theirs = ((ranks[wait.rank], wait.call) for wait in (first, peer))
    uneven = uneven_data.compared(view.case, named)
    ways = Ways() if uneven or by_messages else ways_out(frames_at(*theirs, peer.thread), view.lines)
    return hang_verdict(
        view,
        "SL303",
        has_left(named, mine, theirs, again=loop_left.again),
        () if lonely and len(named) > 1 else named,
        location=place_of(view, first),
        call=first.call,
        because=(*uneven, *ways.because, *lonely, *waiters(view)),
        remedy=ways.remedy or UNEVEN,
        confidence="medium" if lonely or by_messages else "high",
        conclusive=is_irreversible((ranks[wait.rank], wait.call) for wait in graph.waits),
        waiting=(wait.rank for wait in graph.waits),
    )


def _exit_of_cycle(view: View) -> LoopExit | None:
    """Who of a cycle has left the loop in which the others are; None where two threads of a rank make calls."""
    graph, ranks = view.graph, view.by_rank
    if not view.case.source or any(len(threads_inside(ranks[wait.rank])) > 1 for wait in graph.waits):
        return None
    places: dict[object, Variant] = {}
    for wait in graph.waits:
        # One line may use several groups: the helper of a model of which each rank has two.
        group = "" if wait.call.is_message else wait.call.group
        place = (wait.call.location, canonical(wait.call.op), group)
        places.setdefault(place, []).append((ranks[wait.rank], wait.call))
    loop_left = loop_exit.left_the_loop(view.case.source, [*places.values()])
    if not loop_left.ranks or not {*loop_left.ranks} <= {*graph.cycle}:
        return None
    messages = [wait for wait in graph.waits if wait.call.is_message]
    return loop_left if not messages or _is_left_by_a_stage(view.case, graph, loop_left.ranks, messages) else None


def _is_left_by_a_stage(case: Case, graph: Graph, left: tuple[int, ...], messages: list[Wait]) -> bool:
    """Whether one stage has left its loop while another still sends to it, and two at least are inside theirs.

    None of that pair may have made more or fewer messages than ever.
    """
    own = graph.of(left[0])
    senders = [wait for wait in messages if wait.call.peer == left[0] and "send" in wait.call.op]
    if len(left) > 1 or len(messages) < 2 or len(senders) != 1 or own is None or own.call.is_message:
        return False
    return history.changed_count(case, [own, senders[0]]) is None


def deadlock(view: View) -> Verdict | None:
    """Ranks wait for one another in a circle, in different groups or messages, and nobody can go on.

    Example:
        error[SL311]: ranks 0 and 1 wait to receive from each other, and neither of them sends

    How it was concluded: following who waits for whom leads back to where it started, and every rank on the way is
    blocked. Typical are two groups that are entered in different order, and two ranks that both receive before they
    send. A rank is named by the first of these that holds, where no rank of the circle is unseen:
    - it waits somewhere else than all others, who are two at least;
    - it does something else than ever (another peer, count, order or group), and all others do as always; but of two
      that wait to send to each other, the order of calls names nobody;
    - it is in a collective while all others wait for messages with it, or has another peer than two others at that
      line;
    - it takes and sends fewer messages than the stages before and behind it, in a schedule of torch's pipelines;
    - it stands below a condition for it alone, which all others have passed by.
    Otherwise the calls of all are shown.

    What to do: enter groups in the same order on all ranks. Post receives with `irecv`, or let one side send first.

    What it is not: a late rank. Each of them waits, and none will come.
    """
    if view.from_dumps and view.graph.sinks:
        return None  # a dump does not show what a rank waits in, only what it called: one that is late explains more
    cycle = Cycle(view)
    return _verdict(cycle, next((blame for detect in DETECTORS if (blame := detect(cycle)) is not None), Blame()))


# ------------------------------------------------------------------------------------------------ who deviates


def _outlier(cycle: Cycle) -> Blame | None:
    """One rank waits somewhere else than all others, two at least."""
    sites = cycle.sites.values()
    outliers = [ranks for ranks in sites if len(ranks) == 1]
    most = max(map(len, sites), default=0)
    others = len(cycle.unseen) + sum(map(len, sites)) - most
    if len(sites) != 2 or len(outliers) != 1 or most < 2 or most <= others:
        return None
    rank = outliers[0][0]
    with_members = {group.name for group in cycle.view.case.groups}
    if cycle.making and not cycle.groups <= with_members:
        return None  # a group whose members nobody knows may not be the one that its name says
    return Blame((rank,)) if rank in cycle.graph.cycle and not _forgotten_by_its_peer(cycle, rank) else None


def _by_history(cycle: Cycle) -> Blame | None:
    """One that does something else than ever, where all others do as always; or than others of its kind."""
    if cycle.unseen:
        return None
    case = cycle.view.case
    outlier = history.of_cycle(case, cycle.waits)
    if outlier is None:
        outlier = history.changed_group(case) or group_members.only_member_at_line(cycle.view)
        if outlier is None or outlier.rank not in cycle.graph.cycle:
            return None
    # Small messages are sent ahead of their receiver, so that either order had worked: both rely on the other's.
    order_alone = _both_send(cycle.waits) and outlier == history.changed_order(case, cycle.waits)
    return Blame(() if order_alone else (outlier.rank, *outlier.too), outlier)


def _both_send(waits: Sequence[Wait]) -> bool:
    """Whether two ranks wait to send to each other."""
    return len(waits) == 2 and all(wait.call.is_message and "send" in wait.call.op for wait in waits)


def _outlier_in_messages(cycle: Cycle) -> Blame | None:
    """One that is not where those are that exchange messages with it, or like it."""
    rank = messages.outlier(cycle.graph)
    return Blame((rank,)) if rank is not None else None


def _unlike_its_neighbours(cycle: Cycle) -> Blame | None:
    """One that exchanges fewer messages than those beside it agree on, where a schedule of torch's orders them."""
    found = cycle.between
    return Blame((found.deviation.rank,), found.deviation) if found is not None and found.scheduled else None


def _bypassed_by_peers(cycle: Cycle) -> Blame | None:
    """One that stands below a condition for it alone, which all others have passed by."""
    if cycle.in_messages or cycle.unseen or not cycle.view.case.source:
        return None
    places: dict[object, Variant] = {}
    for wait in cycle.waits:
        places.setdefault((wait.call.group, wait.call.location), []).append((cycle.view.by_rank[wait.rank], wait.call))
    ranks = rank_guard.bypassed_by_peers(cycle.view.case, places.values())
    return Blame(ranks, bypassed=True) if ranks else None


DETECTORS: tuple[Callable[[Cycle], Blame | None], ...] = (
    _outlier,
    _by_history,
    _outlier_in_messages,
    _unlike_its_neighbours,
    _bypassed_by_peers,
)


def _forgotten_by_its_peer(cycle: Cycle, rank: int) -> bool:
    """Whether a rank waits in a message of which its peer may have forgotten its part.

    That is one that it has exchanged before; in dumps, which hold no source and few calls, any.
    """
    view, wait = cycle.view, cycle.graph.of(rank)
    facts = view.by_rank[rank]
    if wait is None or (view.from_dumps and wait.call.is_message):
        return wait is not None
    return any(
        own.done and (own.op, own.peer, own.location) == (wait.call.op, wait.call.peer, wait.call.location)
        for own in facts.calls
        if own.is_message
    )


# ------------------------------------------------------------------------------------------------ the verdict


def _verdict(cycle: Cycle, blame: Blame) -> Verdict:
    view, named = cycle.view, blame.ranks
    first = next(wait for wait in cycle.graph.heads if wait.rank in (named or cycle.graph.cycle)[:1])
    peers = [wait for wait in cycle.graph.heads if wait.rank not in named] or [first]
    peer = next((wait for wait in peers if _site(wait) != _site(first)), peers[0])
    # A program that uses several streams may yet come to what stands behind another call on its device.
    in_order = len(cycle.waits) == sum(wait.rank in cycle.graph.cycle for wait in cycle.graph.waits)
    guard = _guard(cycle, blame, first, peer)
    confidence: Confidence = "low" if len(named) > 1 else "medium" if named else "high"
    return hang_verdict(
        view,
        "SL311",
        _summary(cycle, blame, first, peer, guard),
        named,
        location=place_of(view, first),
        call=first.call,
        because=(*([guard.in_words] if guard is not None else ()), *_text(blame), *_counts(cycle), *waiters(view)),
        remedy=_remedy(cycle, blame),
        confidence=confidence,
        conclusive=in_order and is_irreversible((view.by_rank[wait.rank], wait.call) for wait in cycle.graph.waits),
        waiting=cycle.graph.cycle,
    )


def _site(wait: Wait) -> tuple[object, ...]:
    return wait.call.group, wait.call.seq, canonical(wait.call.op), wait.call.peer if wait.call.is_message else None


def _summary(cycle: Cycle, blame: Blame, first: Wait, peer: Wait, guard: Guard | None) -> str:
    if blame.deviation is not None and blame.deviation.too:
        return f"{names(blame.ranks)} make their calls in another order than ever: now they wait for one another"
    if blame.deviation is not None and blame.ranks:
        return f"{blame.deviation.text}: now they wait for one another"
    if not blame.ranks:
        return _what_each_does(cycle.waits)
    others = len(cycle.waits) - 1
    if len(cycle.sites) == 2 and not cycle.in_messages:
        did = deviation(cycle.place(first), cycle.place(peer), others, guard, cycle.view.lines)
        return f"{did}, and they wait for one another"
    peers = f"rank {peer.rank}" if others == 1 else "others"
    own, theirs = (call_at(wait.call, group=first.call.group != peer.call.group) for wait in (first, peer))
    return f"rank {first.rank} is in {own}, {peers} in {theirs}, and they wait for one another"


def _what_each_does(waits: Sequence[Wait]) -> str:
    """The headline of a cycle in which nobody is named: what all of them do, or what each does."""
    who = names(wait.rank for wait in waits)
    other, none = ("each other", "neither") if len(waits) == 2 else ("one another", "none")
    if all(wait.call.is_message and "recv" in wait.call.op for wait in waits):
        return f"{who} wait to receive from {other}, and {none} of them sends"
    if all(wait.call.is_message and "send" in wait.call.op for wait in waits):
        return f"{who} wait to send to {other}, and {none} of them receives"
    groups = len({wait.call.group for wait in waits}) > 1
    calls: dict[str, list[int]] = {}
    for wait in waits:
        calls.setdefault(call_at(wait.call, group=groups), []).append(wait.rank)
    each = ", ".join(f"{names(ranks)} in {call}" for call, ranks in [*calls.items()][:SHOWN])
    more = ", ..." if len(calls) > SHOWN else ""
    return f"{who} wait for one another in a circle: {each}{more}; which of them is wrong is not known"


def _guard(cycle: Cycle, blame: Blame, first: Wait, peer: Wait) -> Guard | None:
    """The condition that one of the two calls stands below, of a rank that is named."""
    if not blame.ranks or cycle.in_messages:
        return None
    lines = cycle.view.lines
    mine, theirs = cycle.place(first), cycle.place(peer)
    return rank_guard.guard(mine, [theirs], lines) or rank_guard.guard(theirs, [mine], lines)


def _text(blame: Blame) -> Sequence[str]:
    told = blame.deviation is not None and (blame.deviation.too or not blame.ranks)
    return (blame.deviation.text,) if blame.deviation is not None and told else ()


def _counts(cycle: Cycle) -> Sequence[str]:
    return cycle.between.counts if cycle.between is not None else ()


def _remedy(cycle: Cycle, blame: Blame) -> str:
    if cycle.between is not None and cycle.between.scheduled:
        return messages.SAME_SCHEDULE
    if cycle.in_messages:
        advice = "compare what both sides of each pair send and receive, how often and in which order"
        by_order = not blame.ranks and any(wait.call.op in ("send", "recv") for wait in cycle.waits)
        return f"{advice}; post receives with irecv, or let one side of two send first" if by_order else advice
    if blame.bypassed:
        return OUT_OF_THE_CONDITION
    if blame.ranks:
        return "see which of these calls that rank has left out, or makes in another order than its peers"
    return "use the groups in the same order on all ranks"

"""Who is slow of the ranks of all nodes, out of what each of these tells. Arithmetic on times of one clock."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model.slow import Pace, RanksOfNode, SlowLink, Slowness
from safelaunch.model.slow_nodes import CallKind, NodePace, RankCalls
from safelaunch.watch.device_times import SEEN_OF_DDP
from safelaunch.watch.lateness import FACTOR, LEAST_S, LOOKS, REST, SHARE, Late, Lateness
from safelaunch.watch.meetings import Arrival, Interval, Key, Meetings
from safelaunch.watch.pace import WARM_UP

LOOK_S = 0.05  # meetings of steps that are shorter are taken together
PEERS = 64  # ranks that are not late, of which the times are kept
MICRO = 1_000_000
OTHER_UNITS = "the nodes do not count the same"
CLOCKS = "the clocks of the nodes are not known well enough: they may differ by {:.1f} ms"


@dataclass(frozen=True)
class Compared:
    """What a comparison of all nodes has come to: who is late, if anybody is; `unknown` says why that is not known;
    `link` is whose collectives last longer, where nobody is late."""

    slow: Slowness | None = None
    unknown: str = ""
    link: SlowLink | None = None


# ------------------------------------------------------------------------------------------------------- on the wire


def told_calls(
    calls: Mapping[int, Sequence[Arrival]], most: int, t: float
) -> tuple[tuple[CallKind, ...], tuple[RankCalls, ...]]:
    """The latest calls of ranks, as they are told.

    Args:
        calls: by rank, oldest first.
        most: of each rank.
        t: CLOCK_MONOTONIC, from which their times are counted.
    """
    kinds: dict[CallKind, int] = {}
    ranks = []
    for rank, own in sorted(calls.items()):
        latest = own[-most:]
        ranks.append(
            RankCalls(
                rank,
                tuple(kinds.setdefault(_kind(call), len(kinds)) for call in latest),
                tuple(call.order for call in latest),
                tuple(call.seq for call in latest),
                tuple(round((call.t - t) * MICRO) for call in latest),
                tuple(round((call.returned - t) * MICRO) if call.returned else 0 for call in latest),
            )
        )
    return tuple(kinds), tuple(ranks)


def _kind(call: Arrival) -> CallKind:
    site = call.site
    if isinstance(site, tuple):
        site = ":".join(part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in site)
    return CallKind(call.op, call.group, call.size, str(site), call.root)


def _arrivals(pace: NodePace) -> dict[int, list[Arrival]]:
    found: dict[int, list[Arrival]] = {}
    for one in pace.calls:
        own = found.setdefault(one.rank, [])
        rows = zip(one.kinds, one.orders, one.numbers, one.came, one.back, strict=False)
        for kind, order, number, came, back in rows:
            if 0 <= kind < len(pace.kinds):
                call = pace.kinds[kind]
                t, returned = pace.t + came / MICRO, pace.t + back / MICRO if back else 0.0
                own.append(Arrival(order, t, call.op, call.group, number, call.size, call.site, call.root, returned))
    return found


# ------------------------------------------------------------------------------------------------------- comparison


def compare(told: Mapping[int, NodePace], hosts: Mapping[int, str], steps: Callable[[float], int]) -> Compared:
    """Who is late of the ranks of all nodes.

    Args:
        told: by node rank: how fast its ranks are.
        hosts: by node rank.
        steps: the number of the step at a moment of the hub's clock.
    """
    sources = {pace.source for pace in told.values()}
    missing = [f"{hosts.get(node, node)}: {pace.unknown}" for node, pace in sorted(told.items()) if pace.unknown]
    if missing:
        return Compared(unknown=missing[0])
    if len({pace.unit for pace in told.values()}) > 1 or (len(sources) > 1 and "device" in sources):
        return Compared(unknown=OTHER_UNITS)
    by_devices = sources == {"device"}
    each = statistics.median(pace.step_s for pace in told.values())
    late, unknown, link = (_by_devices(told, each), "", None) if by_devices else _by_calls(told, hosts, each, steps)
    if late is None or not late.ranks:
        return Compared(unknown=unknown, link=link)
    return Compared(_slowness(told, hosts, late, steps))


def _by_calls(
    told: Mapping[int, NodePace], hosts: Mapping[int, str], each: float, steps: Callable[[float], int]
) -> tuple[Late | None, str, SlowLink | None]:
    calls = {rank: own for pace in told.values() for rank, own in _arrivals(pace).items()}
    meetings, lateness = Meetings(across=True), Lateness()
    intervals = meetings.add(calls, keep=max((len(own) for own in calls.values()), default=0))
    warm = [one for one in intervals if steps(one.since) >= WARM_UP]
    step = each if next(iter(told.values())).unit != "collective" else 0.0
    lateness.add(warm, max(step, LOOK_S), step or None)
    late = lateness.judge(steps)
    if meetings.unknown:
        return None, meetings.unknown, None
    if late is None:
        unknown = "" if lateness.enough(steps) else "too few collectives are known in which the nodes met"
        return None, unknown, None if unknown else slow_link(told, hosts, calls)
    late = _beyond_clocks(late, told, warm)
    if not late.ranks:
        return None, CLOCKS.format(1000 * max(pace.clock_error_s for pace in told.values())), None
    return late, "", None


def _beyond_clocks(late: Late, told: Mapping[int, NodePace], intervals: Sequence[Interval]) -> Late:
    """Without the ranks whose lateness the clocks may account for: with a clock that is ahead a rank seems to come
    later to each meeting, and to be let go as all others."""
    seconds = sum(statistics.median(one.seconds.values()) for one in intervals) or 1.0
    certain = []
    for pace in told.values():
        error = 2 * pace.clock_error_s * len(intervals) / seconds
        for one in pace.paces:
            own, peers = late.shares.get(one.rank, (0.0, 0.0))
            if one.rank in late.ranks and own - peers - error >= SHARE and own - error >= FACTOR * peers:
                certain.append(one.rank)
    return dataclasses.replace(late, ranks=tuple(sorted(certain)))


def _by_devices(told: Mapping[int, NodePace], each: float) -> Late | None:
    """The ranks whose GPUs come last, by the rule for one node (`device_times`); at most half of all."""
    paces = {one.rank: one for pace in told.values() for one in pace.devices}
    share = SHARE * (SEEN_OF_DDP if all(one.mixed for one in paces.values()) else 1.0)
    own = {rank: one.own_s for rank, one in paces.items()}
    even = {rank: one.even_s if one.even_s is not None else one.own_s for rank, one in paces.items()}
    late = []
    for rank in paces:
        peers, more = _peers(own, rank), own[rank] - _peers(own, rank)
        if own[rank] >= FACTOR * peers and more >= max(share * each, LEAST_S):
            late += [rank] if even[rank] - _peers(even, rank) >= REST * more else []
    if not late or len(late) > len(paces) / 2:
        return None
    shares = {rank: (own[rank] / each, _peers(own, rank) / each) for rank in paces} if each else {}
    return Late(tuple(sorted(late)), 0.0, 0, True, shares, {})


def _peers(own: Mapping[int, float], rank: int) -> float:
    return statistics.median_low([seconds for other, seconds in own.items() if other != rank] or [0.0])


def _slowness(
    told: Mapping[int, NodePace], hosts: Mapping[int, str], late: Late, steps: Callable[[float], int]
) -> Slowness:
    each = statistics.median(pace.step_s for pace in told.values())
    some = next(iter(told.values()))
    paces = {one.rank: one for pace in told.values() for one in pace.paces}
    others = sorted(set(paces) - set(late.ranks))[:PEERS]
    late = _with_unshown(told, late)
    shown = [*late.ranks, *others]
    devices = {one.rank: one for pace in told.values() for one in pace.devices}
    nodes = tuple(
        RanksOfNode(hosts.get(node, ""), tuple(one.rank for one in pace.paces), _of(pace, late.ranks))
        for node, pace in sorted(told.items())
    )
    since = late.seq if some.unit == "collective" else steps(late.since) + 1
    return Slowness(
        "straggler",
        late.ranks,
        some.unit,
        None if late.first else since,
        None if late.first else late.since,
        steps(max(pace.t for pace in told.values())),
        each,
        late.grew[0] if late.grew is not None else None,
        source=max(pace.source for pace in told.values()),  # the recorder, where one node needs it
        grows=late.grew is not None,
        paces=tuple(_pace(paces[rank], late, each) for rank in sorted(shown) if rank in paces),
        on_device=bool(devices),
        devices=tuple(devices[rank] for rank in sorted(shown) if rank in devices),
        nodes=nodes,
    )


def _with_unshown(told: Mapping[int, NodePace], late: Late) -> Late:
    """With the ranks of a node of which a few were told alone, the first, the last and one that is late among its own:
    where all of those are late, so are all others."""
    more = set(late.ranks)
    for pace in told.values():
        few = {one.rank for one in pace.calls}
        if len(few) > 1 and few <= more:
            more |= {one.rank for one in pace.paces}
    return dataclasses.replace(late, ranks=tuple(sorted(more)))


def _of(pace: NodePace, ranks: Sequence[int]) -> tuple[int, ...]:
    return tuple(one.rank for one in pace.paces if one.rank in ranks)


def _pace(pace: Pace, late: Late, each: float) -> Pace:
    own, peers = late.shares.get(pace.rank, (None, None))
    times, of = late.looks.get(pace.rank, (0, 0))
    known = own is not None and peers is not None
    return dataclasses.replace(
        pace,
        own_s=round((own or 0.0) * each, 6) if known else None,
        peers_s=round((peers or 0.0) * each, 6) if known else None,
        late=times,
        of=of,
    )


# ------------------------------------------------------------------------------------------------------------- links


def slow_link(
    told: Mapping[int, NodePace], hosts: Mapping[int, str], calls: Mapping[int, Sequence[Arrival]]
) -> SlowLink | None:
    """The one node whose collectives last longer than those among others, by the rules for a rank that is late; None
    where there is none, or where no groups of other nodes are there to be compared with.

    How long a collective lasts is counted from the moment when all have come.
    """
    node_of = {one.rank: node for node, pace in told.items() for one in pace.paces}
    lasted = _lasted(calls, node_of)
    found = []
    for node in told:
        with_it = [seconds for nodes, seconds in lasted if node in nodes]
        without = [seconds for nodes, seconds in lasted if node not in nodes]
        if len(with_it) < LOOKS or len(without) < LOOKS:
            continue
        one, other = statistics.median(with_it), statistics.median(without)
        each = statistics.median(pace.step_s for pace in told.values())
        if one >= FACTOR * other and one - other >= max(SHARE * each, LEAST_S):
            found.append(SlowLink(hosts.get(node, ""), round(one, 6), round(other, 6)))
    return found[0] if len(found) == 1 else None


def _lasted(calls: Mapping[int, Sequence[Arrival]], node_of: Mapping[int, int]) -> list[tuple[frozenset[int], float]]:
    """The nodes of each collective over several nodes, and how long it lasted once all had come."""
    met: dict[Key, list[tuple[int, Arrival]]] = defaultdict(list)
    for rank, own in calls.items():
        for call in own:
            met[call.group, call.seq].append((rank, call))
    found = []
    for who in met.values():
        nodes = frozenset(node_of[rank] for rank, _ in who if rank in node_of)
        if len(nodes) > 1 and all(call.returned and len(who) == call.size for _, call in who):
            found.append((nodes, max(call.returned for _, call in who) - max(call.t for _, call in who)))
    return found

"""Who comes late to the collectives: each rank's own time between one meeting and the next. Arithmetic on times.

In synchronous training all ranks have the same step time, whoever is slow. What differs is the time from the moment
when a meeting lets a rank go (all have come) to the moment when it comes to the next one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = {
    # Messages between two ranks.
    "message": re.compile(r"^i?(?:send|recv)\b"),
    # Nobody but the root is waited for, or the root alone waits, or nobody: such a call lets nobody go.
    "rooted": re.compile(r"^$|^_?(?:broadcast|reduce(?!_scatter)|gather|scatter|destroy_process_group)"),
    # The work between two of them differs by design: experts have as many tokens as the router gives them.
    "uneven": re.compile(r"^all_?to_?all"),
}
# Whoever calls it waits for the root, whose number is in the rank's own record.
HELD_BY_ROOT = re.compile(r"^_?(?:broadcast|scatter)")
KEPT = 4096  # meetings of which it is known when they were over
AGO = 32  # calls: a group that was used longer ago is not waited for

Key = tuple[str, int]  # a meeting: group and number


class Arrival(NamedTuple):
    """A rank comes to a collective. `order` counts the rank's calls: a gap is a gap in the record. `op` is empty for a
    call of another thread than the main one; `site` is the line that calls, empty where it is not known. `root` is the
    rank of a root (-1: none, or not known), `returned` when the call was over (0: not known), `held` the times that the
    rank has spent in calls with a root since the call before that lets ranks go."""

    order: int
    t: float
    op: str
    group: str
    seq: int
    size: int = 0
    site: object = ""
    root: int = -1
    returned: float = 0.0
    held: tuple[tuple[float, float], ...] = ()


Way = tuple[list[Arrival], int]  # calls of a rank that followed one another, and the place of one of them


@dataclass(frozen=True)
class Interval:
    """From one meeting to the next of all who met: `own` seconds of each rank, until the last of them came at `t`;
    `peers` is what the others needed, in the middle (the lower of two middles); `since` is when the first of them
    began, `seconds` the time from the one meeting to the other for each."""

    since: float
    t: float
    own: Mapping[int, float]
    peers: Mapping[int, float]
    seconds: Mapping[int, float]
    group: str = ""
    seq: int = 0
    site: object = ""


@dataclass
class Meetings:
    """Follows the calls of all ranks; those that are known already may be handed in again.

    `unknown` says why nothing can be concluded: messages between pairs of ranks let ranks wait for one another in ways
    that are not seen (pipeline stages are uneven by design). `sites` are the lines of the latest calls. `across`: the
    ranks are of several nodes, and a network lets them go one after the other.
    """

    unknown: str = ""
    across: bool = False
    sites: frozenset[object] = frozenset()
    _calls: dict[int, list[Arrival]] = field(default_factory=dict)
    _members: dict[str, set[int]] = field(default_factory=dict)
    _ends: dict[Key, float] = field(default_factory=dict)  # when the last one came
    _told: set[Key] = field(default_factory=set)

    def restart(self) -> None:
        """Forget all calls: the ranks of another attempt count anew."""
        self._calls, self._members, self._ends, self._told, self.unknown = {}, {}, {}, set(), ""

    def last(self, rank: int) -> int:
        """The order of the latest call of a rank that is known."""
        calls = self._calls.get(rank)
        return calls[-1].order if calls else 0

    def add(self, calls: Mapping[int, Sequence[Arrival]], keep: int = 256) -> list[Interval]:
        """Take in calls, oldest first; the intervals that are complete with them, in order of time."""
        fresh: set[tuple[str, object]] = set()
        for rank, seen in calls.items():
            own = self._calls.setdefault(rank, [])
            last = own[-1].order if own else -1
            for call in seen:
                if call.order <= last:
                    continue
                own.append(call)
                fresh.add((call.op, call.site))
                if rank not in self._members.setdefault(call.group, set()):
                    self._members[call.group].add(rank)
            del own[:-keep]
        if not fresh:
            return []
        self.sites = frozenset(fresh)
        if any(_kind(op) == "message" for op, _ in fresh):
            self.unknown = "ranks send messages to one another"
        return self._complete() if not self.unknown else []

    def _complete(self) -> list[Interval]:
        by_meeting: dict[Key, dict[int, Way]] = {}
        roots = {(c.group, c.seq): c.t for rank, own in self._calls.items() for c in own if c.root == rank}
        for rank, own in self._calls.items():
            for key, way in _ways(own, roots):
                by_meeting.setdefault(key, {})[rank] = way
        whole = {key: max(row[place].t for row, place in who.values()) for key, who in by_meeting.items()
                 if len(who) > 1 and who.keys() == self._members[key[0]]}  # fmt: skip
        self._ends.update(whole)
        found = []
        for key in sorted(whole, key=whole.__getitem__):
            if key in self._told:
                continue
            interval = _interval(by_meeting[key], self._ends, key, None if self.across else self._members)
            if interval is not None:
                self._told.add(key)
                found.append(interval)
        self._told &= by_meeting.keys()
        self._drop(whole)
        for key in list(self._ends)[:-KEPT]:
            del self._ends[key]
        return found

    def _drop(self, whole: Mapping[Key, float]) -> None:
        """Forget what lies before the latest meetings that are over, of each group that the latest calls are of."""
        for own in self._calls.values():
            latest: dict[str, int] = {}
            for place, call in enumerate(own):
                if (call.group, call.seq) in whole and _lets_go(call):
                    latest[call.group] = place
            recent = [place for place in latest.values() if place > len(own) - AGO]
            if recent:
                del own[: min(recent)]


def _ways(own: Sequence[Arrival], roots: Mapping[Key, float]) -> Iterator[tuple[Key, Way]]:
    """A rank's way to each call in which ranks wait for one another: the calls without a gap before it, and its place
    among them.

    Args:
        own: the calls of the rank, oldest first.
        roots: when the roots came to calls that have one.
    """
    row: list[Arrival] = []
    held: tuple[tuple[float, float], ...] = ()
    for call in own:
        if row and call.order != row[-1].order + 1:
            row, held = [], ()
        if _lets_go(call):
            row.append(call._replace(held=held))
            held = ()
            yield (call.group, call.seq), (row, len(row) - 1)
        elif row:
            row[-1] = row[-1]._replace(order=call.order)  # it takes its place in the order
            until = _held_until(call, roots)
            if until > call.t:
                held = (*held, (call.t, until))


def _held_until(call: Arrival, roots: Mapping[Key, float]) -> float:
    """Until when a call with a root has kept its rank; 0 where nobody knows."""
    if call.returned:  # the root may wait for the others as well (gloo)
        return call.returned
    by_root = call.root >= 0 and HELD_BY_ROOT.search(call.op)
    return roots.get((call.group, call.seq), call.t) if by_root else 0.0


@functools.cache
def _kind(op: str) -> str:
    for name, pattern in KINDS.items():
        if pattern.search(op):
            return name
    return ""


def _lets_go(call: Arrival) -> bool:
    """Whether ranks wait in it for one another."""
    return _kind(call.op) != "rooted" and call.size != 1


def _interval(
    who: Mapping[int, Way], ends: Mapping[Key, float], key: Key, members: Mapping[str, Set[int]] | None
) -> Interval | None:
    """The interval that ends with a meeting; None where what the ranks did before cannot be compared.

    Args:
        who: for each rank its calls without a gap, and where among them this one is.
        ends: when meetings were over.
        key: group and number of this meeting.
        members: the ranks of each group that are seen; None where they are of several nodes.
    """
    end = ends[key]
    calls = [row[place] for row, place in who.values()]
    if any((call.site, call.op) != (calls[0].site, calls[0].op) for call in calls):
        return None  # they come from different parts of the program, and so do different work by design
    begins = _where_all_met(who, ends)
    if begins is None:
        return None
    if any(place - begins[rank] > 1 for rank, (_, place) in who.items()):
        between = {tuple((c.op, c.site) for c in row[begins[rank] + 1 : place]) for rank, (row, place) in who.items()}
        if len(between) > 1:
            return None  # some have met in between, and had work of their own for it
    own, seconds, since = {}, {}, end
    for rank, (row, place) in who.items():
        own[rank] = 0.0
        for before, after in itertools.pairwise(row[begins[rank] : place + 1]):
            if _kind(before.op) == _kind(after.op) == "uneven":
                return None
            # Who comes on before all have come to the call before was not held by it (DDP's buckets, async_op).
            let_go = ends[before.group, before.seq]
            if members is None or before.size > len(members[before.group]):
                # Others, of other nodes, may have come later, and a network lets ranks go one after the other.
                let_go = max(let_go, before.returned)
            begun = let_go if after.t >= let_go else before.t
            # Who has come on before the root came was not held by it.
            held = sum(end - max(start, begun) for start, end in after.held if begun < end <= after.t)
            own[rank] += after.t - begun - held
            since = min(since, begun)
        met = row[begins[rank]]
        seconds[rank] = max(end - ends[met.group, met.seq], 0.0)
    return Interval(since, end, own, _peers(own), seconds, *key, calls[0].site)


def _where_all_met(who: Mapping[int, Way], ends: Mapping[Key, float]) -> dict[int, int] | None:
    """The place, among the calls of each rank, of the latest meeting of them all: in between some may have met others,
    and have worked before they did. None where there is none, or where it is not known when a meeting was over."""
    before = {(row[last - 1].group, row[last - 1].seq) if last else None for row, last in who.values()}
    if len(before) == 1 and before <= ends.keys():
        return {rank: last - 1 for rank, (_, last) in who.items()}  # mostly it is so
    seen: dict[int, dict[Key, int]] = {}
    for rank, (row, last) in who.items():
        seen[rank] = {}
        for place in range(last - 1, max(last - AGO, 0) - 1, -1):
            met = row[place].group, row[place].seq
            if met not in ends:
                break
            seen[rank][met] = place
    common = set.intersection(*map(set, seen.values()))
    if not common:
        return None
    latest = max(common, key=ends.__getitem__)
    return {rank: places[latest] for rank, places in seen.items()}


def _peers(own: Mapping[int, float]) -> dict[int, float]:
    ordered = sorted(own.values())
    low = ordered[(len(ordered) - 2) // 2]
    high = ordered[(len(ordered) - 2) // 2 + 1]
    return {rank: high if seconds <= low else low for rank, seconds in own.items()}


def sums(intervals: Sequence[Interval]) -> dict[int, tuple[float, float, float]]:
    """For each rank: its own time, that of those it met, and how long all of it took."""
    found: dict[int, tuple[float, float, float]] = {}
    for interval in intervals:
        for rank, seconds in interval.own.items():
            own, peers, all_ = found.get(rank, (0.0, 0.0, 0.0))
            found[rank] = own + seconds, peers + interval.peers[rank], all_ + interval.seconds[rank]
    return found

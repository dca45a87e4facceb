"""Who comes late to the collectives: each rank's own time between one meeting and the next. Arithmetic on times.

In synchronous training all ranks have the same step time, whoever is slow. What differs is the time from the moment
when a meeting lets a rank go (all have come) to the moment when it comes to the next one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
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
KEPT = 4096  # meetings of which it is known when they were over


class Arrival(NamedTuple):
    """A rank comes to a collective. `order` counts the rank's calls: a gap is a gap in the record. `op` is empty for a
    call of another thread than the main one; `site` is the line that calls, empty where it is not known."""

    order: int
    t: float
    op: str
    group: str
    seq: int
    size: int = 0
    site: object = ""


@dataclass(frozen=True)
class Interval:
    """From one meeting to the next, for all who met: `own` seconds of each rank, until the last of them came at `t`;
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
    that are not seen (pipeline stages are uneven by design). `sites` are the lines of the latest calls.
    """

    unknown: str = ""
    sites: frozenset[object] = frozenset()
    _calls: dict[int, list[Arrival]] = field(default_factory=dict)
    _members: dict[str, set[int]] = field(default_factory=dict)
    _ends: dict[tuple[str, int], float] = field(default_factory=dict)  # when the last one came
    _told: set[tuple[str, int]] = field(default_factory=set)

    def restart(self) -> None:
        """Forget all calls: the ranks of another attempt count anew."""
        self._calls, self._members, self._ends, self._told, self.unknown = {}, {}, {}, set(), ""

    def last(self, rank: int) -> int:
        """The order of the latest call of a rank that is known."""
        calls = self._calls.get(rank)
        return calls[-1].order if calls else 0

    def add(self, calls: Mapping[int, Sequence[Arrival]], keep: int = 64) -> list[Interval]:
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
        by_meeting: dict[tuple[str, int], dict[int, tuple[Arrival, Arrival | None]]] = {}
        for rank, own in self._calls.items():
            before: Arrival | None = None
            for call in own:
                if _kind(call.op) == "rooted":
                    # Transparent: it takes its place in the order, and lets nobody go.
                    follows = _follows(before, call)
                    before = before._replace(order=call.order) if before is not None and follows else None
                    continue
                by_meeting.setdefault((call.group, call.seq), {})[rank] = (
                    call,
                    before if _follows(before, call) else None,
                )
                before = call
        whole = {key: max(call.t for call, _ in who.values()) for key, who in by_meeting.items()
                 if len(who) > 1 and who.keys() == self._members[key[0]]}  # fmt: skip
        self._ends.update(whole)
        found = []
        for key in sorted(whole, key=whole.__getitem__):
            if key in self._told:
                continue
            interval = _interval(by_meeting[key], self._ends, key)
            if interval is not None:
                self._told.add(key)
                found.append(interval)
        self._told &= by_meeting.keys()
        self._drop(whole)
        for key in list(self._ends)[:-KEPT]:
            del self._ends[key]
        return found

    def _drop(self, whole: Mapping[tuple[str, int], float]) -> None:
        """Forget what lies before the latest meeting that is over."""
        for own in self._calls.values():
            for place in range(len(own) - 1, 0, -1):
                if (own[place].group, own[place].seq) in whole and _kind(own[place].op) != "rooted":
                    del own[:place]
                    break


@functools.cache
def _kind(op: str) -> str:
    for name, pattern in KINDS.items():
        if pattern.search(op):
            return name
    return ""


def _follows(before: Arrival | None, call: Arrival) -> bool:
    return before is not None and call.order == before.order + 1


def _interval(
    who: Mapping[int, tuple[Arrival, Arrival | None]], whole: Mapping[tuple[str, int], float], key: tuple[str, int]
) -> Interval | None:
    end = whole[key]
    own, seconds, since = {}, {}, end
    call, _ = next(iter(who.values()))
    site, op = call.site, call.op
    if any(call.site != site or call.op != op for call, _ in who.values()):
        return None  # they come from different parts of the program, and so do different work by design
    for rank, (call, before) in who.items():
        if before is None or (before.group, before.seq) not in whole:
            return None
        if _kind(op) == "uneven" and _kind(before.op) == "uneven":
            return None
        # Who comes on before all have come to the call before was not held by it (DDP's buckets, async_op).
        let_go = whole[before.group, before.seq]
        begun = let_go if call.t >= let_go else before.t
        own[rank], seconds[rank] = call.t - begun, max(end - let_go, 0.0)
        since = min(since, begun)
    return Interval(since, end, own, _peers(own), seconds, *key, site)


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

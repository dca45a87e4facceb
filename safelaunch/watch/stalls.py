"""Short stalls of one rank: each too short to be told of, and together a part of the run that counts."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.model.slow import Stalled
from safelaunch.watch.meetings import Interval

LEAST_S = 0.15  # more than its peers needed for the same way; below it is the noise of a busy machine; an estimate
LONGEST_S = 10.0  # what is longer is told of by itself
TIMES = 2.0  # its peers' time for that way: less may be uneven work
OFTEN = 8  # stalls; who stops a few times may have had its reasons
SHARE = 0.1  # of the time
TOLD_AT_END = 0.05  # of all time: what was less is not worth a line
AFTER_S = 30.0  # of which they are seen; an estimate
ALONE = 3.0  # times the stalls of any other rank: where all stall, no rank does
WINDOWS = (60.0, 300.0, float("inf"))  # seconds back from now
REGULAR = 0.75  # of the gaps between them are alike; an estimate
KEPT = 4096


Key = tuple[str, object, int]  # group, line and rank


@dataclass(frozen=True)
class Stall:
    """A rank came so many seconds later than the others to meeting number `seq` at `t`; `key` says of which group, and
    from which line."""

    t: float
    rank: int
    seconds: float
    key: Key
    seq: int


@dataclass
class Stalls:
    """Collects them from the intervals between meetings."""

    _found: deque[Stall] = field(default_factory=lambda: deque(maxlen=KEPT))
    _since: float | None = None
    _seen: float = 0.0
    _usual: dict[Key, deque[float]] = field(default_factory=dict)
    _lately: dict[Key, deque[bool]] = field(default_factory=dict)
    _ranks: set[int] = field(default_factory=set)

    def restart(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    def add(self, intervals: Iterable[Interval]) -> None:
        """Take in intervals, those that were taken in before left out."""
        for interval in intervals:
            if interval.t <= self._seen:
                continue
            self._since = interval.since if self._since is None else self._since
            self._seen = interval.t
            self._ranks |= interval.own.keys()
            self._note(interval)

    def _note(self, interval: Interval) -> None:
        """The one rank that stalled in an interval, where it does not do so at that line as a rule."""
        rank = max(interval.own, key=interval.own.__getitem__)
        more = interval.own[rank] - interval.peers[rank]
        key = interval.group, interval.site, rank
        usual = self._usual.setdefault(key, deque(maxlen=32))
        often = statistics.median(usual) if usual else 0.0
        usual.append(more)
        late = more >= LEAST_S and interval.own[rank] >= TIMES * interval.peers[rank]
        for each in interval.own:
            lately = self._lately.setdefault((interval.group, interval.site, each), deque(maxlen=OFTEN))
            lately.append(late and each == rank)
        # Whose turn it is there anyhow, who saves or logs before that line, is no later than usual.
        if late and len(usual) >= OFTEN and 2 * often + LEAST_S <= more <= LONGEST_S:
            self._found.append(Stall(interval.t, rank, more, key, interval.seq))

    def judge(self) -> Stalled | None:
        """The rank whose stalls take a tenth of the time or more, lately or in all."""
        found = (self._within(back) for back in WINDOWS)
        return next((one for one in found if one is not None and one.share >= SHARE), None)

    def _is_slow(self, stalls: Iterable[Stall]) -> bool:
        """Whether a rank was late in most of the latest meetings at a line where it stalls: it is slow then."""
        return any(2 * sum(self._lately[key]) > len(self._lately[key]) for key in {stall.key for stall in stalls})

    def in_all(self) -> Stalled | None:
        """What is to be said of it at the end."""
        found = self._within(float("inf"))
        return found if found is not None and found.share >= TOLD_AT_END and found.count > OFTEN else None

    def _within(self, back: float) -> Stalled | None:
        """The stalls of the one rank that has most of them, in the last so many seconds."""
        if self._since is None or self._seen - self._since < AFTER_S:
            return None
        since = max(self._since, self._seen - back)
        by_rank: dict[int, list[Stall]] = {rank: [] for rank in self._ranks}
        for stall in self._found:
            if stall.t > since:
                by_rank[stall.rank].append(stall)
        seconds = {rank: sum(stall.seconds for stall in stalls) for rank, stalls in by_rank.items()}
        first, *others = sorted(seconds, key=lambda rank: -seconds[rank])
        own = by_rank[first]
        if len(own) < OFTEN or any(seconds[first] < ALONE * seconds[rank] for rank in others):
            return None
        if self._is_slow(own) or (first == min(self._ranks) and _is_regular(own)):
            return None
        return Stalled(first, len(own), seconds[first], max(stall.seconds for stall in own), self._seen - since)


def _is_regular(stalls: Iterable[Stall]) -> bool:
    """Whether they come after the same number of meetings each time: a main process that saves, logs or evaluates every
    so many steps does what it is meant to do."""
    numbers: dict[Key, list[int]] = {}
    for stall in stalls:
        numbers.setdefault(stall.key, []).append(stall.seq)
    gaps = Counter(after - before for own in numbers.values() for before, after in itertools.pairwise(own))
    return bool(gaps) and max(gaps.values()) >= REGULAR * gaps.total()

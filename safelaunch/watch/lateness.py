"""Which ranks come late to the collectives, for how many steps, and since when."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from safelaunch.watch.meetings import Interval, sums
from safelaunch.watch.pace import BINS, MOST, onset

# A rank is slow that needs so much more time of its own than those it meets. NVIDIA's resiliency extension calls a rank
# a straggler below 0.7 of the others' speed (gpu_relative_threshold), which is 1.43.
FACTOR = 1.4
SHARE = 0.15  # ... and costs the others so much of their time; an estimate: less is hard to tell from noise
LEAST_S = 0.001  # ... and so much in each step; below it is the noise of a scheduler
REST = 0.1  # of that time is left without the worse half of the steps: who is late now and then (who saves, logs or
# evaluates) is not late. Of times that vary as much as those of a memoryless queue 0.15 are left.
STEPS = 20  # steps in which this must be seen
SECONDS = 5.0
LOOKS = 12
GROWS, GROWN = 1.05, 1.5  # from one of four parts of all looks to the next, and from the first to the last; estimates


@dataclass(frozen=True)
class Look:
    """Some intervals that followed one another. `sums` are seconds by rank (see `meetings.sums`); `late` says of each
    of the late ranks when it first came late in them, and to which number; `tail` the same of those that were late at
    its end, of the last meetings alone."""

    since: float
    t: float
    sums: dict[int, tuple[float, float, float]]
    late: dict[int, tuple[float, int]]
    tail: dict[int, tuple[float, int]]


@dataclass(frozen=True)
class Late:
    """Ranks that are late, since a moment and a number of a meeting (`first`: for as long as anybody has looked). Per
    rank: its own time and its peers' as shares of all time, and in how many of how many looks it was late. `grew`: the
    first of them has come to need more bit by bit, seconds of its own for a step at first and now."""

    ranks: tuple[int, ...]
    since: float
    seq: int
    first: bool
    shares: dict[int, tuple[float, float]]
    looks: dict[int, tuple[int, int]]
    grew: tuple[float, float] | None = None


@dataclass
class Lateness:
    """Looks at the meetings of all ranks, taken together over the time of a step or more."""

    looks: list[Look] = field(default_factory=list)
    _open: list[Interval] = field(default_factory=list)

    def restart(self) -> None:
        """Begin anew."""
        self.looks, self._open = [], []

    def interrupt(self) -> None:
        """What is open counts for nothing."""
        self._open = []

    def add(self, intervals: Sequence[Interval], seconds: float, step: float | None) -> None:
        """Take in intervals in order of time; a look is closed when it holds so many seconds. `step` is how long a step
        takes, None where it is a meeting at each of the program's lines."""
        for interval in intervals:
            if self._open and interval.t - self._open[0].since > 4 * seconds + interval.t - interval.since:
                self._open = []  # what lies in between was not seen
            self._open.append(interval)
            if interval.t - self._open[0].since >= seconds:
                self._close(step)

    def _close(self, step: float | None) -> None:
        intervals, self._open = self._open, []
        seconds = intervals[-1].t - intervals[0].since
        steps = seconds / step if step else len(intervals) / len({one.site for one in intervals})
        found = sums(intervals)
        late = {}
        for rank, (own, peers, all_) in found.items():
            more = own - peers
            if own < FACTOR * peers or more < SHARE * all_ or more < LEAST_S * steps:
                continue
            excess = sorted(one.own[rank] - one.peers[rank] for one in intervals if rank in one.own)
            if sum(excess[: max(len(excess) - int(steps / 2), 1)]) < REST * more:
                continue
            first = next((one for one in intervals if rank in one.own and _is_late_in(one, rank)), intervals[0])
            late[rank] = first.t, first.seq
        tail = {rank: _tail(intervals, rank) for rank in intervals[-1].own if _is_late_in(intervals[-1], rank)}
        self.looks.append(Look(intervals[0].since, intervals[-1].t, found, late, tail))
        del self.looks[:-BINS]

    def enough(self, steps: Callable[[float], int]) -> bool:
        """Whether there are looks enough to say who is late, or that nobody is."""
        return self._start(steps) is not None

    def judge(self, steps: Callable[[float], int]) -> Late | None:
        """The ranks that are late now, and have been for long enough.

        At most half of those that meet: where more are late, the others are early, and nobody stands out.

        Args:
            steps: the number of the step at a moment; where the program makes none, the number of its meetings.
        """
        start = self._start(steps)
        if start is None:
            return None
        begins: dict[int, int] = {}
        for rank in sorted({rank for look in self.looks[start:] for rank in look.late}):
            begun = onset([rank in look.late for look in self.looks], start)
            if begun is not None:
                begins[rank] = begun
        seen = {rank for look in self.looks[start:] for rank in look.sums}
        if not begins or len(begins) > len(seen) / 2:
            return None
        place = min(begins.values())
        rank = min(begins, key=begins.__getitem__)
        since, seq = self.looks[place].late[rank]
        if place:  # it began within the look before, too late to make all of that late
            since, seq = self.looks[place - 1].tail.get(rank, (since, seq))
        shares, counts = {}, {}
        for rank in seen:
            of = [look for look in self.looks[place:] if rank in look.sums]
            all_ = sum(look.sums[rank][2] for look in of) or 1.0
            shares[rank] = tuple(sum(look.sums[rank][part] for look in of) / all_ for part in (0, 1))
            counts[rank] = sum(rank in look.late for look in of), len(of)
        grew = self._growth(rank, steps) if place <= 1 else None
        return Late(tuple(sorted(begins)), since, seq, place <= 1, shares, counts, grew)  # type: ignore[arg-type]

    def _growth(self, rank: int, steps: Callable[[float], int]) -> tuple[float, float] | None:
        """What a rank needs of its own for a step, in the first and the last of four parts of all looks, where it has
        come to need more and more; None where it has not."""
        looks = [look for look in self.looks if rank in look.sums]
        quarter = len(looks) // 4
        parts = [looks[n * quarter : (n + 1) * quarter if n < 3 else None] for n in range(4)] if quarter else []
        needs = []
        for part in parts:
            made = steps(part[-1].t) - steps(part[0].since)
            if made <= 0:
                return None
            needs.append(sum(look.sums[rank][0] for look in part) / made)
        first = looks[0]
        begun = first.sums[rank][0] / max(steps(first.t) - steps(first.since), 1)
        grows = len(needs) == 4 and all(GROWS * one <= two for one, two in itertools.pairwise(needs))
        return (min(begun, needs[0]), needs[-1]) if grows and needs[-1] >= GROWN * needs[0] else None

    def clear(self, ranks: Sequence[int], steps: Callable[[float], int]) -> bool:
        """Whether these ranks keep up again."""
        start = self._start(steps)
        if start is None:
            return False
        recent = self.looks[start:]
        return all(sum(rank in look.late for look in recent) < (1 - MOST) * len(recent) for rank in ranks)

    def _start(self, steps: Callable[[float], int]) -> int | None:
        if len(self.looks) < LOOKS:
            return None
        last = self.looks[-1].t
        for place in range(len(self.looks) - LOOKS, -1, -1):
            since = self.looks[place].since
            if last - since >= SECONDS and steps(last) - steps(since) >= STEPS:
                return place
        return None


def _tail(intervals: Sequence[Interval], rank: int) -> tuple[float, int]:
    found = intervals[-1]
    for interval in reversed(intervals):
        if rank in interval.own:
            if not _is_late_in(interval, rank):
                break
            found = interval
    return found.t, found.seq


def _is_late_in(interval: Interval, rank: int) -> bool:
    own, peers = interval.own[rank], interval.peers[rank]
    return own >= FACTOR * peers and own - peers >= LEAST_S


__all__ = ["FACTOR", "Late", "Lateness", "Look"]

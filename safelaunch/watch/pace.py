"""How fast a run goes: steps and times out of pulses, in bins, and where a series of bins begins to be bad."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from safelaunch.pulse import Pulse

BIN_S = 0.25  # steps shorter than this are taken together
BINS = 2400  # that are kept: ten minutes or more
MOST = 0.75  # of the bins of a window must show it; an estimate
EVEN = 0.6  # ... and from this share on they count as begun
PARTS = 8  # of a run, in which steps that grow are told from steps that have jumped; an estimate
GROWS = 1.05  # by this factor from one to the next
LEAST_BINS = 8  # of each part; an estimate
GROWTH_S = 30.0  # of all; an estimate
SLOWER = 2.0  # times the usual step time
SLOWER_BIN = 1.5  # ... of each bin, in most of them
EVER_SINCE = 0.95  # of all bins since then, where the first steps are the measure: those of a run may just vary
SPREAD = 1.2  # ... and above nearly all that was seen before, whatever the steps' lengths
LEARNED = 20  # steps that must have been seen before; an estimate
WARM_UP = 10  # steps that count for nothing: compilation, autotuning, the first filling of caches


@dataclass(frozen=True)
class Bin:
    """Some steps that followed one another: from number `first` on, `count` of them, in the seconds from `since` to
    `t`. `loading` and `waiting` are the shares of that time in loaders and in collectives, by rank. `kind` is what
    tells steps of one kind from those of another, where anything does."""

    since: float
    t: float
    first: int
    count: int
    loading: Mapping[int, float]
    waiting: Mapping[int, float]
    kind: object = None
    each: float = field(init=False)  # seconds of a step

    def __post_init__(self) -> None:
        object.__setattr__(self, "each", (self.t - self.since) / self.count)


def unit_of(pulses: Mapping[int, Pulse]) -> str:
    """What all of these ranks count."""
    if all(pulse.steps for pulse in pulses.values()) or all(pulse.marks for pulse in pulses.values()):
        return "step"
    if all(pulse.batches for pulse in pulses.values()):
        return "batch"
    return "collective" if all(pulse.ended for pulse in pulses.values()) else ""


def count_of(pulse: Pulse, unit: str) -> tuple[int, float]:
    """How far a rank has counted, and when it last did (0: not known, so it is now)."""
    if unit == "step":
        return (pulse.steps, pulse.stepped) if pulse.steps else (pulse.marks, pulse.marked)
    return (pulse.batches, pulse.fed) if unit == "batch" else (pulse.ended, 0.0)


@dataclass
class Pace:
    """The bins of a run. The lowest rank counts for all; what one of them does otherwise is for `meetings` to say."""

    unit: str = ""
    bins: list[Bin] = field(default_factory=list)
    _begun: tuple[float, int, dict[int, tuple[float, float]]] | None = None
    _times: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def restart(self) -> None:
        """Another attempt, or another thing to count."""
        self.bins, self._begun, self._times, self._counts = [], None, [], []

    def interrupt(self) -> None:
        """What is under way counts for nothing: somebody or something held us or the ranks up."""
        self._begun = None

    def poll(self, pulses: Mapping[int, Pulse], now: float, kind: object = None) -> None:
        """One look at all ranks' pulses."""
        unit = unit_of(pulses) if pulses else ""
        if unit != self.unit:
            self.unit = unit
            self.restart()
        if not unit:
            return
        count, t = count_of(pulses[min(pulses)], unit)
        t = t or now
        spent = {rank: (pulse.loading, pulse.waited) for rank, pulse in pulses.items()}
        if not self._counts or count > self._counts[-1]:
            self._times.append(t)
            self._counts.append(count)
            del self._times[:-BINS], self._counts[:-BINS]
        if self._begun is None or self._begun[2].keys() != spent.keys() or count < self._begun[1]:
            self._begun = t, count, spent
            return
        since, first, before = self._begun
        if count == first or t - since < BIN_S:
            return
        loading, waiting = (
            {rank: max(0.0, (spent[rank][place] - before[rank][place]) / (t - since)) for rank in spent}
            for place in (0, 1)
        )
        if first >= WARM_UP:
            self.bins.append(Bin(since, t, first, count - first, loading, waiting, kind))
            del self.bins[:-BINS]
        self._begun = t, count, spent

    def at(self, t: float) -> int:
        """How far the run had counted at a moment, between looks in proportion."""
        place = bisect.bisect_right(self._times, t)
        if not 0 < place < len(self._times):
            return 0 if not self._counts else self._counts[0 if place == 0 else -1]
        (t0, t1), (c0, c1) = self._times[place - 1 : place + 1], self._counts[place - 1 : place + 1]
        return c0 + int((c1 - c0) * (t - t0) / (t1 - t0)) if t1 > t0 else c1

    @property
    def count(self) -> int:
        """How far the run has counted."""
        return self._counts[-1] if self._counts else 0

    def each(self) -> float | None:
        """The median time of a step over the last bins."""
        return statistics.median(one.each for one in self.bins[-20:]) if self.bins else None


def window(bins: Sequence[Bin], steps: int, seconds: float, least: int) -> int | None:
    """Where the last so many steps begin, which took at least so long and are so many bins; None: not there yet."""
    counted = 0
    for place in range(len(bins) - 1, -1, -1):
        counted += bins[place].count
        if counted >= steps and bins[-1].t - bins[place].since >= seconds and len(bins) - place >= least:
            return place
    return None


def growth(bins: Sequence[Bin]) -> float | None:
    """The time of a step in the first of `PARTS` equal parts of these bins, in seconds, where steps have become longer
    from nearly each part to the next: what grows bit by bit has no place at which it began. Phases of a run (longer
    sequences from some step on) are few jumps with rest between them."""
    size = len(bins) // PARTS
    if size < LEAST_BINS or bins[-1].t - bins[0].since < GROWTH_S:
        return None
    medians = [statistics.median(one.each for one in bins[n * size : (n + 1) * size]) for n in range(PARTS)]
    rises = sum(later > GROWS * earlier for earlier, later in itertools.pairwise(medians))
    return medians[0] if rises >= PARTS - 2 else None


def onset(bad: Sequence[bool], start: int) -> int | None:
    """Where a series begins to be bad, when it mostly is so from `start` to its end; None when it is not.

    It is the place from which on the bad ones outweigh the good ones most (a cumulative sum, as change points are
    found): a stray one before it does not count.
    """
    recent = bad[start:]
    if not recent or sum(recent) < MOST * len(recent) or not any(bad[-2:]):
        return None
    best, highest, total = start, 0.0, 0.0
    for place in range(len(bad) - 1, -1, -1):
        total += 1 - EVEN if bad[place] else -EVEN
        if total > highest:
            best, highest = place, total
    return next(place for place in range(best, len(bad)) if bad[place])


def jumped(bins: Sequence[Bin], start: int, recent: float) -> tuple[int, float] | None:
    """Where steps became longer, which take `recent` seconds since `start`, and what was usual before.

    That is what came before `start`. Where most of that is as slow by now, it is the first steps, if there were none
    like them since: a run may have been quick for a few seconds alone, and had something else to tell just then.
    """
    found = _jumped_from(bins, start, start, recent)
    least = next((place for place in range(start) if enough(bins[:place])), None)
    if found is not None or least is None:
        return found
    found = _jumped_from(bins, least, start, recent)
    if found is None:
        return None
    place, usual = found
    slow = sum(one.each > SLOWER_BIN * usual for one in bins[place:])
    return found if slow >= EVER_SINCE * (len(bins) - place) else None


def _jumped_from(bins: Sequence[Bin], place: int, start: int, recent: float) -> tuple[int, float] | None:
    """The same, looked for from one place on."""
    for _ in range(3):  # what is usual depends on where it begins, and the other way round
        if not enough(bins[:place]):
            return None
        before = sorted(one.each for one in bins[:place])
        usual = statistics.median(before)
        begun = onset([one.each > SLOWER_BIN * usual for one in bins], start)
        if begun is None:
            return None
        if begun == place:
            break
        place = begun
    nearly_all = before[min(len(before) - 1, int(0.9 * len(before)))]
    return (place, usual) if recent > SLOWER * usual and recent > SPREAD * nearly_all else None


def enough(bins: Sequence[Bin]) -> bool:
    """Whether so much is known of these bins that others can be measured by them."""
    return len(bins) >= 3 and sum(one.count for one in bins) >= LEARNED

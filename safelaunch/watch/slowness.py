"""What the watch hands on of a slow run: the times of each rank, from bins of steps."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from safelaunch.model.slow import Pace, Slow, Slowness, Stalled
from safelaunch.pulse import Pulse
from safelaunch.watch.device_times import Judged
from safelaunch.watch.lateness import Late
from safelaunch.watch.pace import WARM_UP, Bin


def usual_of(bins: Sequence[Bin], place: int) -> float | None:
    """The median time of a step before a bin, where enough is known."""
    before = bins[:place]
    return statistics.median(one.each for one in before) if sum(one.count for one in before) >= WARM_UP else None


def of_late(
    late: Late, bins: Sequence[Bin], pulses: Mapping[int, Pulse], unit: str, numbers: tuple[int, int], source: str
) -> Slowness:
    """Ranks that come last to the collectives. `numbers` are those of the step at which it began, and of now."""
    place = next((n for n, one in enumerate(bins) if one.t > late.since), len(bins) - 1)
    each = statistics.median(one.each for one in bins[place:])
    grew = late.grew
    return Slowness(
        "straggler",
        late.ranks,
        unit,
        None if late.first else numbers[0],
        None if late.first else late.since,
        numbers[1],
        each,
        grew[0] if grew is not None else usual_of(bins, place),
        source=source,
        grows=grew is not None,
        paces=tuple(_pace(rank, bins, place, pulses, late, each) for rank in pulses),
    )


def of_bins(
    kind: Slow,
    bins: Sequence[Bin],
    place: int,
    pulses: Mapping[int, Pulse],
    *,
    ranks: tuple[int, ...] = (),
    unit: str = "step",
    usual: float | None = None,
    expect: float | None = None,
    source: str = "",
    unknown: str = "",
) -> Slowness:
    """What the steps themselves show, from bin `place` on."""
    now = statistics.median(one.each for one in bins[place:])
    usual = usual if usual is not None else usual_of(bins, place)
    return Slowness(
        kind,
        ranks,
        unit,
        _begun(bins, place, usual, now) if place > 1 else None,
        bins[place].since if place > 1 else None,
        bins[-1].first + bins[-1].count,
        now,
        usual,
        expect,
        source,
        unknown,
        tuple(_pace(rank, bins, place, pulses) for rank in pulses),
    )


def of_stalls(stalled: Stalled, bins: Sequence[Bin], pulses: Mapping[int, Pulse], unit: str) -> Slowness:
    """A rank that stops for a moment again and again."""
    found = of_bins("straggler", bins, 0, pulses, ranks=(stalled.rank,), unit=unit, source="calls")
    return dataclasses.replace(found, stalled=stalled)


def is_same(one: Slowness, other: Slowness) -> bool:
    """Whether both say the same of the same ranks: one that stalls now and then may become slow altogether."""
    return one.ranks == other.ranks and (one.stalled is None) == (other.stalled is None)


def with_devices(slowness: Slowness, looks: Sequence[Judged]) -> Slowness:
    """With what the GPUs do, and did before it began, by the latest looks at them."""
    begun = slowness.begun if slowness.begun is not None else 0.0
    since = [look.paces for look in looks if look.ended > begun]
    before = [look.paces for look in looks if look.ended <= begun]
    return dataclasses.replace(
        slowness, on_device=True, devices=since[-1] if since else (), devices_before=before[-1] if before else ()
    )


def _begun(bins: Sequence[Bin], place: int, usual: float | None, now: float) -> int:
    """The step at which it began, which may be within a bin: in proportion to how much longer its steps are."""
    if usual is None or now <= usual:
        return bins[place].first + 1
    long = sum(
        one.count * min(max((one.each - usual) / (now - usual), 0.0), 1.0) for one in bins[place - 1 : place + 1]
    )
    return bins[place].first + bins[place].count - round(long) + 1


def _pace(
    rank: int,
    bins: Sequence[Bin],
    place: int,
    pulses: Mapping[int, Pulse],
    late: Late | None = None,
    each: float = 0.0,
) -> Pace:
    def share(name: str, part: Sequence[Bin]) -> float | None:
        known = [getattr(one, name)[rank] for one in part if rank in getattr(one, name)]
        return round(statistics.median(known), 3) if known else None

    shares = late.shares.get(rank) if late is not None else None
    before = bins[:place] if place > 1 else ()
    return Pace(
        rank,
        round(shares[0] * each, 6) if shares else None,
        round(shares[1] * each, 6) if shares else None,
        *(late.looks.get(rank, (0, 0)) if late is not None else (0, 0)),
        share("loading", bins[place:]),
        share("waiting", bins[place:]),
        share("loading", before),
        share("waiting", before),
        pulses[rank].loader_workers,
    )

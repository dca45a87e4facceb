"""Which GPU comes last to the calls, by when the GPUs came to them and were through: arithmetic on times.

With NCCL a host is back from a call at once. What tells ranks apart is what their GPUs do between two calls, from the
moment when one is through to the moment when it comes to the next: there the slow one needs longer, and the others wait
for it in the call. In that time a GPU may work, or wait for its host to enqueue what follows.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from safelaunch.model.slow import DevicePace
from safelaunch.watch.lateness import FACTOR, LEAST_S, REST, SECONDS, SHARE, STEPS, Late

PARTS = 4  # in which a GPU is looked at for itself, of the time in which it was followed
MOST = 3  # of the parts must show it: what comes now and then is in some of them
FOLLOW_STEPS = 1.2 * STEPS  # for so many steps a GPU is followed ...
FOLLOW_S = 1.2 * SECONDS  # ... and for so long ...
FOLLOW_MOST_S = 300.0  # ... and not for longer; an estimate
LOOKS = 50  # in a step, at which it is asked how far a GPU is: a fiftieth of a step is 2 % of what is measured
LOOK_S = 0.001, 0.01  # ... but no more often, for what it costs, and no less, for the marks that are kept (1024)
# Of a step of DDP the backward pass is not seen apart from its calls, and takes twice as long as the forward pass (two
# products for each of its one): what a GPU loses in that one is a third of all that it loses.
SEEN_OF_DDP = 1 / 3
COMMON = 0.1  # of a rank's marks: what makes so many of them must be there on all ranks
UNEVEN = re.compile(r"^all_?to_?all")  # experts: the work between two of them differs by design
MESSAGES = frozenset(("send", "recv", "isend", "irecv", "batch_isend_irecv"))


class Mark(NamedTuple):
    """A place in a stream. `kind` says where it stands: `ahead` of a call, `behind` one, where one was `waited` for
    that was issued before, ahead of a backward pass of DDP (`forward`), behind an optimizer's `step`. `site` is the
    line. Times are CLOCK_MONOTONIC: of the host, and of the GPU."""

    stream: int
    kind: str
    call: str
    site: tuple[str, int]
    enqueued: float
    reached: float


class Look(NamedTuple):
    """One rank's GPU, as it was followed from `begun` to `ended`; `missing` says why there are no marks."""

    begun: float
    ended: float
    marks: Sequence[Mark] = ()
    missing: str = ""


class Span(NamedTuple):
    """What a GPU did for some time: something of its `own`, `hosted` seconds of it before the host had enqueued what
    comes next; or a call, `mixed` with work of its own."""

    since: float
    until: float
    own: bool
    hosted: float = 0.0
    mixed: bool = False


@dataclass(frozen=True)
class Judged:
    """What the looks at all GPUs say: who is late and how much, the pace of each GPU, or why nothing can be said."""

    late: Late | None = None
    paces: tuple[DevicePace, ...] = ()
    begun: float = 0.0
    ended: float = 0.0
    unknown: str = ""


def follow_s(each: float) -> tuple[float, float]:
    """For how many seconds GPUs are followed where a step takes `each`, and the seconds between two looks."""
    least, most = LOOK_S
    return min(max(FOLLOW_S, FOLLOW_STEPS * each), FOLLOW_MOST_S), min(max(each / LOOKS, least), most)


def judge(looks: Mapping[int, Look], steps: Callable[[float], int] | None) -> Judged:
    """Compare the GPUs of ranks that work in step.

    Args:
        looks: by rank, of all that meet.
        steps: the number of the step at a moment; None where the program makes none that can be seen, and each line
            that calls is called once in one.
    """
    begun, ended = max(look.begun for look in looks.values()), min(look.ended for look in looks.values())
    unknown = _unusable(looks)
    if unknown:
        return Judged(unknown=unknown)
    streams = [stream for stream in sorted(_streams(looks)) if _comparable(looks, stream)]
    if not streams:
        return Judged(unknown="the ranks make calls of their own, at lines of their own")
    spans = {stream: {rank: _within(look, stream, begun, ended) for rank, look in looks.items()} for stream in streams}
    count = _count(looks, steps, begun, ended)
    if count < STEPS or ended - begun < SECONDS:
        return Judged(unknown=f"only {count:.0f} steps were seen while the GPUs were followed")
    spans = {stream: by for stream, by in spans.items() if all(any(one.own for one in own) for own in by.values())}
    if not spans:
        return Judged(unknown="nothing tells when the GPUs are through with the calls")
    found = {stream: _late(by, begun, ended, count) for stream, by in spans.items()}
    costs = {stream: max((late.shares[r][0] - late.shares[r][1] for r in late.ranks), default=0.0)
             for stream, late in found.items()}  # fmt: skip
    inside = {stream: sum(_seconds(own, own_time=False) for own in by.values()) for stream, by in spans.items()}
    chosen = max(spans, key=lambda stream: (costs[stream], inside[stream]))
    paces = tuple(_pace(rank, own, count) for rank, own in spans[chosen].items())
    return Judged(found[chosen] if found[chosen].ranks else None, paces, begun, ended)


def _unusable(looks: Mapping[int, Look]) -> str:
    for rank, look in looks.items():
        if look.missing:
            return f"the GPU of rank {rank} could not be followed: {look.missing}"
        if not look.marks:
            return "the ranks make no calls from Python that could be followed"
    if any(mark.call in MESSAGES for look in looks.values() for mark in look.marks):
        return "ranks send messages to one another"
    return ""


def _streams(looks: Mapping[int, Look]) -> set[int]:
    return set.intersection(*({mark.stream for mark in look.marks} for look in looks.values()))


def _comparable(looks: Mapping[int, Look], stream: int) -> bool:
    """Whether all ranks make the same calls in a stream; those that are rare may be one's alone."""
    seen, common = set(), set()
    for look in looks.values():
        counts = Counter((mark.kind, mark.call, mark.site) for mark in look.marks if mark.stream == stream)
        common |= {what for what, times in counts.items() if times > COMMON * counts.total()}
        seen |= {frozenset(counts)}
    return all(common <= own for own in seen)


def _count(looks: Mapping[int, Look], steps: Callable[[float], int] | None, begun: float, ended: float) -> float:
    """How many steps there were in this time: those of the GPUs, which may be behind those of the hosts."""
    if steps is not None:
        hosts = steps(ended) - steps(begun)
        gpus = min(sum(mark.kind == "step" for mark in look.marks) for look in looks.values())
        return gpus / max(round(gpus / max(hosts, 1)), 1) if gpus else hosts  # a step may be one of several optimizers
    calls = [[mark for mark in look.marks if mark.kind == "ahead"] for look in looks.values()]
    return min(len(own) / max(len({(mark.call, mark.site) for mark in own}), 1) for own in calls)


def _within(look: Look, stream: int, begun: float, ended: float) -> list[Span]:
    found = spans(mark for mark in look.marks if mark.stream == stream)
    return [one for one in found if one.since >= begun and one.until <= ended]


def spans(marks: Iterable[Mark]) -> Iterator[Span]:
    """What a stream did from mark to mark."""
    opened: Mark | None = None  # it is in this call, or in a backward pass
    through: Mark | None = None  # it is through with this one, since then
    since = 0.0
    for mark in marks:
        t = max(mark.reached, since)
        if mark.kind in ("ahead", "forward"):
            if opened is not None:
                yield Span(since, t, own=False, mixed=opened.kind == "forward")
            elif through is not None and not (UNEVEN.search(through.call) and UNEVEN.search(mark.call)):
                yield Span(since, t, own=True, hosted=min(max(mark.enqueued - since, 0.0), t - since))
            opened, through, since = mark, None, t
        elif opened is not None and (opened.kind == "forward") == (mark.kind == "step"):
            yield Span(since, t, own=False, mixed=mark.kind != "behind")
            opened, through, since = None, mark, t


def _seconds(spans: Sequence[Span], *, own_time: bool) -> float:
    return sum(one.until - one.since for one in spans if one.own == own_time)


def _pace(rank: int, own: Sequence[Span], steps: float) -> DevicePace:
    mixed = sum(one.until - one.since for one in own if one.mixed)
    inside = _seconds(own, own_time=False)
    times = sorted(one.until - one.since for one in own if one.own)
    return DevicePace(
        rank,
        round(_seconds(own, own_time=True) / steps, 6),
        round(sum(one.hosted for one in own) / steps, 6),
        round(inside / steps, 6),
        mixed > inside / 2,
        round(sum(times[: max(len(times) - int(steps / 2), 1)]) / steps, 6),
    )


# ------------------------------------------------------------------------------------------------------- who is late


def _late(by_rank: Mapping[int, Sequence[Span]], begun: float, ended: float, steps: float) -> Late:
    """The ranks whose GPUs come last, in most parts of the time and at its end; none where more than half do."""
    seconds = (ended - begun) / PARTS
    mixed = all(_pace(rank, own, steps).mixed for rank, own in by_rank.items())
    share = SHARE * (SEEN_OF_DDP if mixed else 1.0)
    times: Counter[int] = Counter()
    latest: set[int] = set()
    for part in range(PARTS):
        since = begun + part * seconds
        own = {
            rank: sorted(one.until - one.since for one in spans if one.own and since <= one.until < since + seconds)
            for rank, spans in by_rank.items()
        }
        latest = {rank for rank in own if _is_late(own, rank, share * seconds, steps / PARTS)}
        times.update(latest)
    ranks = tuple(sorted(rank for rank in latest if times[rank] >= MOST))
    if len(ranks) > len(by_rank) / 2:
        ranks = ()
    sums = {rank: _seconds(spans, own_time=True) for rank, spans in by_rank.items()}
    shares = {rank: (sums[rank] / (ended - begun), _peers(sums, rank) / (ended - begun)) for rank in sums}
    return Late(ranks, begun, 0, True, shares, {rank: (times[rank], PARTS) for rank in by_rank})


def _is_late(own: Mapping[int, Sequence[float]], rank: int, least: float, steps: float) -> bool:
    """Whether a GPU needs longer for itself than its peers, and not now and then only.

    Args:
        own: by rank, how long each span of its own was, in order of length.
        rank: which one.
        least: seconds that it must cost.
        steps: how many there were.
    """
    sums = {r: sum(spans) for r, spans in own.items()}
    peers = _peers(sums, rank)
    more = sums[rank] - peers
    if sums[rank] < FACTOR * peers or more < max(least, LEAST_S * steps):
        return False
    # Without the longest of every second step: who evaluates or saves every so often is not late.
    rest = {r: sum(spans[: max(len(spans) - int(steps / 2), 1)]) for r, spans in own.items()}
    return rest[rank] - _peers(rest, rank) >= REST * more


def _peers(sums: Mapping[int, float], rank: int) -> float:
    return statistics.median_low([value for r, value in sums.items() if r != rank] or [0.0])

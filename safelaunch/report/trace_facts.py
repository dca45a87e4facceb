"""What the trace of one rank comes to: shares of waiting, of its loader and of kernels, and when its calls came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from safelaunch.model.traces import RankEvents, RankTrace

GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
# DDP waits for its buckets in C++, and then copies what it got back; torch names the copy, and not the wait.
AFTER_WAIT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
UNDER_WAY = ("gloo:", "nccl:", "mpi:", "ucc:")  # what torch notes while a collective is under way
Span = tuple[float, float]


@dataclass(frozen=True)
class Facts:
    """Of one rank, in seconds: `seconds` its steps took, of which it was `waiting` in collectives and in its `loader`;
    `kernels` its GPU was busy, of which `communication` with kernels of NCCL alone. `ops` are the calls of torch's
    process groups in their order: the name, and when on the common clock. `groups` is as in `RankEvents`."""

    trace: RankTrace
    seconds: float
    waiting: float
    loader: float
    kernels: float
    communication: float
    ops: tuple[tuple[str, float], ...] = field(repr=False, default=())
    groups: int = 0


def facts(trace: RankTrace, events: RankEvents) -> Facts:
    """Measure one rank. What Python's calls waited comes from the rank itself, what DDP waited from the trace."""
    first, last = trace.marks[0], trace.marks[-1]
    begun = (first.wall_ns - events.base_ns) / 1e3  # in µs, as the events have it
    whole = (begun, begun + trace.seconds * 1e6)
    timed = [event for event in events.found if event.get("ph") == "X" and type(event.get("dur")) in (int, float)]
    kernels = [one for one in timed if one.get("cat") in KERNELS]
    ops = sorted((one["ts"], one["name"]) for one in timed if one["name"].startswith("c10d::"))
    inside = [one for one in ops if whole[0] <= one[0] <= whole[1]]
    return Facts(
        trace,
        trace.seconds,
        min(trace.seconds, max(0.0, last.waited - first.waited) + _in_reducers(trace, timed) / 1e6),
        min(trace.seconds, max(0.0, last.loading - first.loading)),
        length(within(united(_span(one) for one in kernels), whole)) / 1e6,
        length(within(united(_span(one) for one in kernels if one["name"].startswith("nccl")), whole)) / 1e6,
        tuple((name, trace.begun + (t - begun) / 1e6) for t, name in inside),
        events.groups,
    )


def _in_reducers(trace: RankTrace, timed: Sequence[dict[str, Any]]) -> float:
    """For how many µs DDP has waited: the time before it copies a bucket back, in which its thread does nothing else
    and a collective is under way."""
    running = united(_span(one) for one in timed if one["name"].startswith(UNDER_WAY))
    own = sorted(
        (_span(one), one["name"]) for one in timed if one.get("tid") == trace.thread and one.get("cat") == "cpu_op"
    )
    gaps: list[Span] = []
    until = 0.0
    for (begun, ended), what in own:
        if what == AFTER_WAIT and until and begun > until:
            gaps.append((until, begun))
        until = max(until, ended)
    return shared(running, gaps)


def _span(event: dict[str, Any]) -> Span:
    return event["ts"], event["ts"] + event["dur"]


def united(spans: Iterable[Span]) -> list[Span]:
    """Spans without overlaps, in their order."""
    found: list[Span] = []
    for begun, ended in sorted(spans):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found


def within(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """The parts of spans that lie within another one."""
    cut = ((max(begun, bounds[0]), min(ended, bounds[1])) for begun, ended in spans)
    return [(begun, ended) for begun, ended in cut if begun < ended]


def shared(some: Sequence[Span], others: Sequence[Span]) -> float:
    """For how long spans of two kinds lie over each other; of each kind in their order, without overlaps."""
    found, at = 0.0, 0
    for begun, ended in others:
        while at < len(some) and some[at][1] <= begun:
            at += 1
        each = at
        while each < len(some) and some[each][0] < ended:
            found += min(some[each][1], ended) - max(some[each][0], begun)
            each += 1
        at = max(at, each - 1)  # the last one may go on
    return found


def length(spans: Iterable[Span]) -> float:
    """The length of spans that do not overlap."""
    return sum(ended - begun for begun, ended in spans)

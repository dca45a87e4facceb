"""The traces of all ranks in words: what they spend their steps with, and who comes last."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model.traces import TracedCall
from safelaunch.report.page.subject import names
from safelaunch.report.trace_facts import Facts

ROWS = 16  # ranks that have a line of their own
LATE_S = 1e-3  # what is less is the machine's, not the program's
SHARE = 0.02  # of a step, below which to come last costs nothing
NESTED = 8  # calls of Python that are under way at once
ISSUED_S = 0.005  # between Python's call and torch's, where the call returns at once


@dataclass(frozen=True)
class Meeting:
    """One collective: when each rank came to it, by the common clock, and where it is called, or empty."""

    times: Mapping[int, float]
    place: str = ""

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.times, key=lambda rank: self.times[rank])

    @property
    def spread(self) -> float:
        """Seconds between the first and the last."""
        return max(self.times.values()) - min(self.times.values())


def lines(measured: Sequence[Facts], unit: str = "step") -> list[str]:
    """The summary, its first line the headline.

    Args:
        measured: of each rank.
        unit: what was counted.
    """
    if not measured:
        return ["no rank has left a trace"]
    first = measured[0].trace
    a, b = first.marks[0].count + 1, first.marks[-1].count
    which = f"{unit} {a}" if a == b else f"{unit}s {a} to {b}"
    who = names(one.trace.rank for one in measured)
    each = statistics.median(_step_s(one) for one in measured)
    found = [f"{which} of {who}: {_ms(each)} a {unit}, {_spent(measured)}"]
    found += [_who_is_last(measured, each)]
    found += _table(measured) if len(measured) <= ROWS else _extremes(measured)
    return [*found, *_kernels(measured), *_remarks(measured)]


def meetings(measured: Sequence[Facts]) -> list[Meeting]:
    """The collectives of these steps that several of these ranks came to.

    torch's own record has all calls, and no numbers: it counts where each rank has one group and makes the same calls.
    Else it is what Python has called, by group and number.
    """
    calls = [tuple(name for name, _ in one.ops) for one in measured]
    if len(measured) > 1 and calls[0] and len(set(calls)) == 1 and all(one.groups == 1 for one in measured):
        places_ = _places(measured[0])
        return [Meeting({one.trace.rank: one.ops[i][1] for one in measured}, places_[i]) for i in range(len(calls[0]))]
    by_call: dict[tuple[str, int, str], dict[int, float]] = {}
    places: dict[tuple[str, int, str], str] = {}
    for one in measured:
        for call in one.trace.calls:
            key = (call.group, call.seq, call.op)
            by_call.setdefault(key, {})[one.trace.rank] = call.t + one.trace.offset_s
            places.setdefault(key, call.place)
    return [Meeting(times, places[key]) for key, times in by_call.items() if len(times) > 1]


def _spent(measured: Sequence[Facts]) -> str:
    """What a step goes into, most of all."""

    def share(name: str) -> str:
        return f"{statistics.median(getattr(one, name) / one.seconds for one in measured):.0%}"

    if all(one.kernels for one in measured):  # a kernel of NCCL's lasts until the others have come
        return f"{share('kernels')} of it with kernels, {share('communication')} with those of NCCL, waits included"
    if any(one.trace.cuda for one in measured):
        return f"{share('waiting')} of it the hosts wait in collectives; how long GPUs wait is not seen"
    return f"{share('waiting')} of it waiting in collectives"


def _places(one: Facts) -> list[str]:
    """Where Python makes each of the calls of a rank; empty where DDP makes it."""
    calls = sorted(one.trace.calls, key=lambda call: call.t)
    begun = [call.t for call in calls]
    found = []
    for _, at in one.ops:
        t = at - one.trace.offset_s
        last = bisect.bisect_right(begun, t)
        earlier = reversed(calls[max(0, last - NESTED) : last])
        found.append(next((call.place for call in earlier if _holds(call, t)), ""))
    return found


def _holds(call: TracedCall, t: float) -> bool:
    return call.t <= t <= (call.returned or call.t + ISSUED_S)


def _who_is_last(measured: Sequence[Facts], step_s: float) -> str:
    found = meetings(measured)
    if len(measured) < 2 or not found:
        alone = len(measured) < 2
        return f"who starts last is not known: {'one rank alone was traced' if alone else 'no collective was seen'}"
    errors = [one.trace.clock_error_s for one in measured]
    if any(error is None for error in errors):
        return "who starts last is not known: the clocks of the nodes could not be compared"
    error = max(error or 0.0 for error in errors)
    middle = statistics.median(one.spread for one in found)
    cost: Counter[int] = Counter()  # in µs
    for one in found:
        cost[one.last] += round(one.spread * 1e6) if one.spread >= max(LATE_S, 2 * error) else 0
    rank, lost = cost.most_common(1)[0]
    if lost < SHARE * step_s * measured[0].trace.steps * 1e6:
        return f"no rank starts last: all begin their {len(found)} collectives within {_ms(middle)} (median)"
    if 2 * lost <= cost.total():
        return f"ranks start last in turns: {_ms(middle)} after the first (median of {len(found)} collectives)"
    own = [one for one in found if one.last == rank]
    after = statistics.median(one.spread for one in own)
    place, _ = Counter(one.place or "a backward pass of DDP" for one in own).most_common(1)[0]
    host = "'s host" if any(one.trace.cuda for one in measured) else ""  # which runs ahead of its GPU
    return (
        f"rank {rank}{host} starts last in {len(own)} of {len(found)} collectives, "
        f"{_ms(after)} after the first (median), most at {place}"
    )


def _table(measured: Iterable[Facts]) -> list[str]:
    measured = list(measured)
    cuda = any(one.kernels for one in measured)
    head = f"{'rank':>6} {'ms a step':>10} {'waiting':>8} {'loader':>8}" + (
        f" {'kernels':>8} {'NCCL':>8}" if cuda else ""
    )
    rows = [head]
    for one in measured:
        shares = [one.waiting, one.loader, *([one.kernels, one.communication] if cuda else [])]
        row = f"{one.trace.rank:>6} {_step_s(one) * 1e3:>10.1f} "
        rows.append(row + " ".join(f"{share / one.seconds:>8.0%}" for share in shares))
    return rows


def _extremes(measured: Sequence[Facts]) -> list[str]:
    found = []
    kinds = [("waiting", "waiting in collectives"), ("loader", "in the loader"), ("kernels", "with kernels on its GPU")]
    for name, words in kinds:
        shares = sorted((getattr(one, name) / one.seconds, one.trace.rank) for one in measured)
        (least, low), (most, high) = shares[0], shares[-1]
        if most > 0:
            middle = statistics.median(share for share, _ in shares)
            found.append(f"{middle:.0%} {words} (median); rank {low} {least:.0%}, rank {high} {most:.0%}")
    return found


def _kernels(measured: Sequence[Facts]) -> list[str]:
    if not any(one.trace.cuda for one in measured):
        return ["no kernels: no rank uses a GPU"]
    without: dict[str, list[int]] = {}
    for one in measured:
        if one.trace.cuda and not one.kernels:
            why = one.trace.no_kernels or "none ran, or torch's profiler could not see them"
            without.setdefault(why, []).append(one.trace.rank)
    return [f"no kernels of {names(ranks)}: {why}" for why, ranks in without.items()]


def _remarks(measured: Sequence[Facts]) -> list[str]:
    found = []
    still = max(measured, key=lambda one: one.trace.write_s)
    if still.trace.write_s >= 1.0:
        found.append(
            f"behind the last step, rank {still.trace.rank} stood still for {still.trace.write_s:.1f} s to write"
        )
    short = [one.trace.rank for one in measured if one.trace.interrupted]
    if short:
        found.append(f"{names(short)} ended early: the script has begun a profiler of its own")
    return found


def _step_s(one: Facts) -> float:
    return one.seconds / max(1, one.trace.steps)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"

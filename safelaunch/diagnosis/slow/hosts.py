"""Runs that are slow where calls end on hosts: which rank comes last, by its times or by its loader, and why."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from safelaunch.diagnosis.slow import nodes
from safelaunch.diagnosis.slow.one_rank import of_rank
from safelaunch.diagnosis.slow.reasons import Lateness, Reason, are_slow, at_their_limit, span, who, with_reason
from safelaunch.model import Case, Confidence
from safelaunch.model.slow import Pace, Slowness, Stalled

NONE = Reason("", (), "")
RECURRING = "look for what recurs on that rank: recompilation, garbage collection, a page cache, saving or logging"
WAITED = 0.5  # of what a rank costs the others must be seen in their waits


@dataclass(frozen=True)
class _Lag:
    """How a rank is seen to be slower than its peers.

    Args:
        lost: the share of all time that it costs them.
        what: completes "rank 1 is slow: ...".
        line: that shows it.
        by_calls: its times between collectives show it, not its loader's.
    """

    lost: float
    what: str
    line: str
    by_calls: bool


def straggler(case: Case, slow: Slowness) -> Lateness | None:
    """What is said of the ranks that come last; None where they are not late for a reason of their own."""
    pace = next((one for one in slow.paces if one.rank == slow.ranks[0]), None)
    if pace is None:
        return None
    if slow.stalled is not None:
        return _stalled(case, slow, slow.stalled)
    lag = _lag(slow, pace)
    reason = nodes.throttled(slow) or of_rank(case, slow, pace.rank, lag.lost)
    if reason.everywhere:
        return None  # too many processes for the CPUs, and one of the ranks comes off worst
    if reason.loader and at_their_limit(slow) is not False:
        return None  # `loader_bound` tells
    if not reason.shown and slow.nodes and slow.source == "recorder":
        return nodes.or_link(slow, lag.what, (lag.line, *reason.because))
    waited = _waited(slow, lag.lost) if lag.by_calls else ()
    few = len(slow.ranks) * 2 < len(slow.paces) or len(slow.paces) == 2
    return Lateness(
        with_reason(f"{_begun(slow)}: {lag.what}", reason),
        (*reason.because[:1], lag.line, *reason.because[1:], *waited),
        reason.remedy,
        _confidence(lag.by_calls, bool(waited), reason.shown, few=few),
        reason.location,
    )


def _stalled(case: Case, slow: Slowness, stalled: Stalled) -> Lateness:
    """What is said of a rank that stops for a moment again and again."""
    reason = of_rank(case, slow, stalled.rank, stalled.share)
    each = f"{stalled.count} stalls of up to {span(stalled.longest)}"
    took = f"together {stalled.seconds:.0f} s of {stalled.over:.0f} s ({stalled.share:.0%})"
    known = reason.shown and bool(reason.what)
    return Lateness(
        with_reason(
            f"rank {stalled.rank} stops for a moment again and again: {each}, {took}", reason if known else NONE
        ),
        (*reason.because, "between them it keeps up; its peers wait for it in a collective each time"),
        reason.remedy if known else RECURRING,
        "medium",
        reason.location,
    )


def _begun(slow: Slowness) -> str:
    """That ranks are slow, and since when; of those that have become so bit by bit, what they needed at first."""
    if not slow.grows or slow.usual_s is None:
        return are_slow(slow)
    has = "has" if len(slow.ranks) == 1 else "have"
    return f"{who(slow)} {has} become slower, bit by bit, from {span(slow.usual_s)} of its own at first"


def _lag(slow: Slowness, pace: Pace) -> _Lag:
    if pace.own_s is None or pace.peers_s is None:
        return _by_loaders(slow, pace)
    own, peers = pace.own_s, pace.peers_s
    times = f"{span(own)} of its own for a {slow.unit}, its peers {span(peers)} ({own / max(peers, 1e-9):.1f} times)"
    seen = "their own records" if slow.source == "calls" else "torch's Flight Recorder"
    looks = f"last at the collectives in {pace.late} of {pace.of} looks ({seen})"
    lost = (own - peers) / slow.now_s if slow.now_s else _by_loaders(slow, pace).lost
    needs = "it needs" if len(slow.ranks) == 1 else f"rank {pace.rank} needs"
    return _Lag(lost, f"{needs} {times}", f"{looks}; a {slow.unit} takes {span(slow.now_s or 0.0)}", True)


def _by_loaders(slow: Slowness, pace: Pace) -> _Lag:
    """By the time in its loader, where nobody sees who comes last to the collectives."""
    others = [one.loading or 0.0 for one in slow.paces if one.rank not in slow.ranks]
    own, peers = pace.loading or 0.0, statistics.median(others) if others else 0.0
    what = f"{own:.0%} of each {slow.unit} is waiting for data, {peers:.0%} on the others"
    line = f"who comes last to the collectives is not seen{f' ({slow.unknown})' if slow.unknown else ''}"
    return _Lag(own - peers, what, line, False)


def _waited(slow: Slowness, lost: float) -> tuple[str, ...]:
    """What the peers' own time in collectives says of it; nothing where they make none from Python."""
    own = [pace.waiting for pace in slow.paces if pace.rank in slow.ranks and pace.waiting is not None]
    peers = [pace.waiting for pace in slow.paces if pace.rank not in slow.ranks and pace.waiting is not None]
    if not own or not peers or statistics.median(peers) - min(own) < WAITED * lost:
        return ()
    usual = statistics.median(peers)
    return (f"its peers spend {usual:.0%} of their time waiting in collectives, it {min(own):.0%}",)


def _confidence(by_calls: bool, waited: bool, reason: bool, *, few: bool) -> Confidence:
    """By the collectives, by the waits of the peers, and by a reason: high where the first and the last agree, and the
    ranks that come last are few."""
    if by_calls and reason and few:
        return "high"
    return "medium" if by_calls or (reason and waited) else "low"

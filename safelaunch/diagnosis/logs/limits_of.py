"""The timeouts of groups: how long a call might take, and how long it was waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.logs.timeline import quote
from safelaunch.diagnosis.logs.waits import DEFAULT_GROUPS, hang_verdict
from safelaunch.diagnosis.wording import names
from safelaunch.model import Verdict
from safelaunch.model.logs import TimedOut

UNKNOWN_GROUP = "?"
SHORTEST_MS = 1000  # a limit below it is a mistake in its unit, or a test
SHORT_MS = 60_000
LONG = 260  # characters of a quoted timeout: the limit and the time stand at its end


def too_short(timeouts: Sequence[TimedOut]) -> Verdict | None:
    """The verdict where the limit of a group is so short that no collective can be relied on to meet it."""
    call = next((t for t in timeouts if 0 <= t.limit_ms < SHORTEST_MS), None)
    if call is None:
        return None
    waited = max(call.ran_ms, call.limit_ms)
    ranks = sorted({t.rank for t in timeouts if t.rank is not None})
    return hang_verdict(
        "SL414",
        f"{names(ranks) if ranks else 'ranks'} gave up on {label(call)} after {_time(waited)}, "
        f"because the timeout of the group is set to {_time(call.limit_ms)}",
        because=(quote(call.at), f"Timeout(ms)={call.limit_ms}: a first collective alone takes longer than that"),
        remedy="look at the timeout= of init_process_group or new_group: it is a timedelta; torch's own is 10 minutes",
        confidence="medium",
        call=call,
        waiting=ranks,
    )


def _time(ms: int) -> str:
    """`5 ms`, `12 s`, `30 min` or `7.1 h`."""
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms / 1000
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def of_limits(calls: Iterable[TimedOut]) -> tuple[str, ...]:
    """What is unusual in how long a call was waited for: a limit of seconds, or a wait that went far beyond it."""
    call = max((t for t in calls if t.limit_ms > 0), default=None, key=lambda t: t.ran_ms)
    if call is None:
        return ()
    limit = _time(call.limit_ms)
    if call.ran_ms > 2 * call.limit_ms:
        return (f"it was waited for {_time(call.ran_ms)}, against a limit of {limit}: the watchdog itself was held up",)
    if call.limit_ms <= SHORT_MS:
        return (f"the limit was {limit} only: a slow start, a checkpoint or an evaluation of one rank may exceed it",)
    return ()


def label(call: TimedOut) -> str:
    """`ALLREDUCE #7 of group 1`."""
    group = " of a subgroup" if call.group == UNKNOWN_GROUP else f" of group {call.group}"
    group = "" if call.group in DEFAULT_GROUPS else group
    return f"{call.op} #{call.seq}{group}"

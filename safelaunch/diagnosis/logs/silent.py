"""Ranks that wrote steps, and then nothing more, while others went on to the end of the log."""

from __future__ import annotations

from safelaunch.diagnosis.wording import names
from safelaunch.model.logs import LogFacts, Paced

LONG_S = 120.0  # an estimate: files that are copied while a job runs end some seconds apart
PAUSES = 3.0  # times the longest one that the rank has made before


def told(facts: LogFacts) -> str:
    """`rank 3's last line is at 12:03:10, 14 min before the log's end`; empty where there is no such rank.

    A rank is one only where at least as many others went on. One that wrote no steps may have nothing to write.
    """
    silent, end = _silent(facts)
    if not silent:
        return ""
    first = silent[0]
    since = _minutes(end - (first.last.t or 0.0))
    if len(silent) == 1:
        return f"rank {first.rank}'s last line is at {_clock(first)}, {since} before the log's end"
    several = f"{names([one.rank for one in silent])} wrote nothing up to the log's end"
    return f"{several}; rank {first.rank}'s last line is at {_clock(first)}, {since} before"


def ranks(facts: LogFacts) -> tuple[int, ...]:
    """The ranks that `told` tells of."""
    return tuple(one.rank for one in _silent(facts)[0])


def _silent(facts: LogFacts) -> tuple[list[Paced], float]:
    """Such ranks, who fell silent first comes first, and the time at which the log ends."""
    clocks = {one.last.clock for one in facts.paced}
    if len(clocks) != 1 or len(facts.paced) < 2:
        return [], 0.0  # times of several kinds do not compare
    end = max(one.last.t or 0.0 for one in facts.paced)
    ended = {one.rank for one in facts.finished}

    def is_silent(one: Paced) -> bool:
        return end - (one.last.t or 0.0) >= max(LONG_S, PAUSES * one.pause_s)

    silent = [one for one in facts.paced if is_silent(one) and one.rank not in ended]
    others = [one for one in facts.paced if end - (one.last.t or 0.0) < LONG_S]
    if len(others) < len(silent):
        return [], end
    return sorted(silent, key=lambda one: (one.last.t or 0.0, one.rank)), end


def _minutes(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _clock(one: Paced) -> str:
    seconds = one.last.t or 0.0
    if one.last.clock == "boot":
        return f"{seconds:.0f} s after the boot"
    minutes, second = divmod(int(seconds) % 86400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}" + (" UTC" if one.last.clock == "utc" else "")

"""Ranks that sleep again and again for a short time, in a loop that ends by itself: no such sleep is a stall. Pure."""

from __future__ import annotations

from safelaunch.diagnosis.lines import Lines, by_place
from safelaunch.diagnosis.stall.syscalls import SLEEPS
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.model import Case, RankFacts, Verdict

OFTEN = 2  # wakings between two looks: one may be the end of a long sleep
RATE = 1.0  # wakings a second; who sleeps for longer than that is told of like any other sleep. An estimate


def sleep_shortly(verdict: Verdict, case: Case) -> bool:
    """Whether a rank that others wait for wakes often, and stands in a `for` loop whose passes may be its work. A
    `while` loop may look for what never comes."""
    lines = by_place(case.source)
    culprits = (facts for facts in case.ranks if facts.rank in verdict.culprit_ranks)
    return not verdict.conclusive and any(_wakes(facts) and _counts(facts, lines) for facts in culprits)


def _wakes(facts: RankFacts) -> bool:
    kernel = facts.kernel
    if kernel is None or kernel.syscall not in SLEEPS or not kernel.switches or not kernel.since_s:
        return False
    return kernel.switches >= OFTEN and kernel.switches >= RATE * kernel.since_s


def _counts(facts: RankFacts, lines: Lines) -> bool:
    """Whether the innermost function that has a loop around its line has `for` loops alone there. A line in a loop's
    body stands below the condition of a `while`, and below none of a `for`."""
    for frame in frames_of(facts, facts.pid):
        line = lines.get((frame.file, frame.line))
        if line is not None and line.loops:
            starts = {first for first, _ in line.loops}
            return line.line not in starts and not any(line.is_below(start) for start in starts)
    return False

"""What was told while the ranks still waited, and what the evidence at the end says: one verdict of both."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.codes import Trait, has
from safelaunch.model import Verdict


def gave_up(verdict: Verdict, notice: Verdict) -> bool:
    """Whether the ranks that failed are such as had waited, and have given up: that says less than what was seen while
    they waited. NCCL's watchdog aborts the process of whoever waits, and never that of who is waited for."""
    victims = set(verdict.culprit_ranks)
    aborted = verdict.code == "SL406" and victims <= {*notice.waiting} - {*notice.culprit_ranks}
    return not victims or verdict.code == "SL414" or aborted


def with_notice(verdict: Verdict, notice: Verdict | None) -> Verdict:
    """The verdict, or the notice where the last look says less than the one before it; with the place that an earlier
    look found."""
    if notice is None:
        return verdict
    if has(verdict.code, Trait.UNKNOWN):
        return notice
    if verdict.location is None and verdict.culprit_ranks == notice.culprit_ranks:
        return replace(verdict, location=notice.location)  # a stack that came late
    return verdict

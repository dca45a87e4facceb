"""What was told while the ranks still waited, and what the evidence at the end says: one verdict of both."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.wording import in_brackets, is_waiting, names, verb
from safelaunch.model import Case, Verdict

AT_WORK_CPU = 0.5  # cores; a wait that polls takes less
AT_WORK_BYTES = 4 << 20  # a look itself makes a rank write up to 1 MB


def gave_up(verdict: Verdict, notice: Verdict, given_up: frozenset[int] = frozenset()) -> bool:
    """Whether the ranks that failed are such as had waited, and have given up: that says less than what was seen while
    they waited. NCCL's watchdog aborts the process of whoever waits. That is also the rank for whom its peers wait,
    where it waits itself for what it has enqueued.

    Args:
        given_up: ranks of which it is known that their watchdogs gave up a call before they ended.
    """
    victims = set(verdict.culprit_ranks)
    waited = victims <= {*notice.waiting} - {*notice.culprit_ranks}
    aborted = verdict.code == "SL406" and (waited or victims <= given_up)
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


def is_at_work(verdict: Verdict, case: Case) -> bool:
    """Whether all that others wait for are seen to compute, or to move data: an evaluation, a checkpoint. That is no
    reason to speak of a fault."""
    named = [facts for facts in case.ranks if facts.rank in verdict.culprit_ranks]
    late = has(verdict.code, Trait.LATE) and not verdict.conclusive
    kernels = [facts.kernel for facts in named]
    works = all(kernel is not None and kernel.worked(AT_WORK_CPU, AT_WORK_BYTES) for kernel in kernels)
    return late and bool(named) and bool(verdict.waiting) and works


def of_those_at_work(verdict: Verdict) -> str:
    """`rank 1 waits in barrier #11 for rank 0, which is at work (train.py:12)`."""
    ranks = verdict.culprit_ranks
    where = f" in {verdict.operation} #{verdict.seq}" if verdict.operation and verdict.seq else ""
    at = in_brackets(verdict.location) if len(ranks) == 1 else ""
    return f"{is_waiting(verdict.waiting)}{where} for {names(ranks)}, which {verb(ranks, 'is', 'are')} at work{at}"

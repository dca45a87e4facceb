"""Ranks that torch's watchdog has ended because a call of theirs took too long.

They are victims of what they waited for, and the hang is judged as it was the moment before.
"""

from __future__ import annotations

import dataclasses

from safelaunch.codes import Trait, has
from safelaunch.diagnosis.crash.first_failure import failures
from safelaunch.diagnosis.waitgraph.record import SIGABRT
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Incident, RankFacts, Verdict


def may_be(case: Case, verdict: Verdict) -> bool:
    """Whether ranks may have been ended by a watchdog: some were aborted, and the verdict knows no reason."""
    return has(verdict.code, Trait.EFFECT) and bool(_aborted(case))


def as_it_was(case: Case, given_up: frozenset[int]) -> Case | None:
    """The case as a hang, before the first watchdog gave up; None where there was none, or where a rank failed for
    another reason.

    Args:
        case: of ranks that failed, with the recorders of those that were aborted and of those that live.
        given_up: ranks whose recorders show a call that had lasted for longer than its timeout when they ended.
    """
    aborted = _aborted(case)
    others = [failure for failure in failures(case) if failure.rank not in aborted and not failure.consequence]
    if others or not given_up & aborted:
        return None
    ranks = tuple(_waiting(facts) if facts.rank in aborted else facts for facts in case.ranks)
    incident = Incident("hang", case.incident.attempt, (), case.incident.t)
    return dataclasses.replace(case, incident=incident, ranks=ranks)


def of_waiting(verdict: Verdict, before: Verdict, case: Case) -> Verdict:
    """The verdict of the hang, if it says more than that ranks were aborted, with how the wait ended."""
    aborted = _aborted(case)
    if not before.culprit_ranks or (aborted.issuperset(before.culprit_ranks) and before.confidence == "low"):
        return verdict
    ended = f"the wait ended when torch's watchdog aborted {names(aborted)}, after the timeout of the call"
    return dataclasses.replace(before, because=(*before.because, ended))


def _aborted(case: Case) -> set[int]:
    """Ranks that ended by SIGABRT without an exception of their own."""
    return {
        facts.rank
        for facts in case.ranks
        if facts.exit is not None and facts.exit.code == -SIGABRT and facts.error is None
    }


def _waiting(facts: RankFacts) -> RankFacts:
    """A rank that was aborted, as it was: where its main thread stood, faulthandler has written down."""
    return dataclasses.replace(
        facts, exit=None, exit_call=None, shut_down=None, raised=False, stack=facts.stack or facts.fault, fault=None
    )

"""Ranks that torch's watchdog has ended because a call of theirs took too long.

They are victims of what they waited for, and the hang is judged as it was the moment before.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from safelaunch.codes import CATALOGUE, Trait, has
from safelaunch.diagnosis.crash.first_failure import failures
from safelaunch.diagnosis.waitgraph.record import SIGABRT
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Incident, RankFacts, Verdict

ABORTING = "Fatal Python error: Aborted"  # how faulthandler calls SIGABRT


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
    if _failed_otherwise(case, aborted) or not given_up & aborted:
        return None
    until = min(map(_given_up_at, case.ranks))
    ranks = tuple(_waiting(facts, until) if facts.rank in aborted else facts for facts in case.ranks)
    incident = Incident("hang", case.incident.attempt, (), case.incident.t)
    return dataclasses.replace(case, incident=incident, ranks=ranks)


@dataclass(frozen=True)
class LateCall:
    """A call of a rank that completed after its timeout, while the watchdog that had given it up was at work."""

    call: str  # with its number
    took_s: float
    timeout_s: float


def of_late_calls(verdict: Verdict, case: Case, late: Mapping[int, LateCall]) -> Verdict | None:
    """That calls came to an end, and too late for the watchdog; None where a rank failed for another reason.

    Args:
        verdict: on the ranks that were aborted.
        case: in which they were aborted.
        late: by rank, of ranks that waited for nothing any more.
    """
    aborted = _aborted(case)
    if _failed_otherwise(case, aborted) or not aborted <= set(late):
        return None
    longest = max((late[rank] for rank in aborted), key=lambda one: one.took_s / one.timeout_s)
    return dataclasses.replace(
        _nobody(verdict, aborted),
        summary=f"torch's watchdog aborted {names(aborted)}: {longest.call} took {longest.took_s:.1f} s, its timeout "
        f"is {longest.timeout_s:g} s, and it completed before they ended",
        confidence="medium",
        remedy="give the process group a longer timeout (init_process_group(timeout=...)) if such a time is usual, as "
        "it may be for a group's first call, which connects its ranks",
    )


def of_waiting(verdict: Verdict, before: Verdict, case: Case, given_up: frozenset[int]) -> Verdict:
    """The verdict of the hang, if it says more than that ranks were aborted, with how the wait ended, and the exit code
    of ranks that ended themselves.

    Args:
        verdict: on the ranks that were aborted.
        before: on the case `as_it_was`.
        case: in which they were aborted.
        given_up: as in `as_it_was`.
    """
    aborted = _aborted(case)
    ended = f"the wait ended when torch's watchdog aborted {names(aborted)}, after the timeout of the call"
    if aborted <= given_up:  # nobody of them is to blame for the abort
        if has(before.code, Trait.UNKNOWN):
            return _nobody(verdict, aborted)
    elif not before.culprit_ranks or (aborted.issuperset(before.culprit_ranks) and before.confidence == "low"):
        return verdict
    return dataclasses.replace(before, because=(*before.because, ended), exit_code=verdict.exit_code)


def _nobody(verdict: Verdict, aborted: set[int]) -> Verdict:
    """For whom they had waited is not known, and it is no fault of theirs."""
    return dataclasses.replace(
        verdict,
        code="SL414",
        slug=CATALOGUE["SL414"].slug,
        summary=f"torch's watchdog aborted {names(aborted)}: a call reached its timeout, and for whom they waited is "
        "not known",
        culprit_ranks=(),
        secondary=(),
        waiting=tuple(sorted(aborted)),
        confidence="low",
        remedy="see where the other ranks stood, in report.html of the bundle",
    )


def _aborted(case: Case) -> set[int]:
    """Ranks that end by SIGABRT without an exception of their own."""
    return {facts.rank for facts in case.ranks if facts.error is None and _ends_by_abort(facts)}


def _failed_otherwise(case: Case, aborted: set[int]) -> bool:
    """Whether a rank that was not aborted failed for a reason of its own."""
    return any(failure.rank not in aborted and not failure.consequence for failure in failures(case))


def _ends_by_abort(facts: RankFacts) -> bool:
    """Also of a process that is not gone yet: a core dump takes its time, and faulthandler writes before it."""
    if facts.exit is not None:
        return facts.exit.code == -SIGABRT
    return facts.fault is not None and facts.fault.text.startswith(ABORTING)


def _given_up_at(facts: RankFacts) -> float:
    """When the first call of a rank had lasted for as long as its timeout."""
    ends = (call.t + call.timeout_s for call in facts.recorded or () if call.timeout_s and not call.done)
    return min(ends, default=math.inf)


def _waiting(facts: RankFacts, until: float) -> RankFacts:
    """A rank that was aborted, as it was at `until`: where its main thread stood, faulthandler has written down. What
    it called later, it called because its communicator was taken from under the call that it waited in."""
    return dataclasses.replace(
        facts,
        exit=None,
        exit_call=None,
        shut_down=None,
        raised=False,
        stack=facts.stack or facts.fault,
        fault=None,
        collectives=tuple(call for call in facts.collectives if call.t <= until),
    )

"""Sorting what was found: candidates, victims, and what came from outside."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.diagnosis.crash.first_failure import TRANSPORT
from safelaunch.diagnosis.logs import deaths, nccl, speaker, specific, unresolved
from safelaunch.diagnosis.logs.candidates import (
    attributed,
    from_handled,
    from_messages,
    from_raised,
    merged,
    of_loaders,
)
from safelaunch.diagnosis.logs.exceptions import (
    ANY_CONNECTION,
    Exceptions,
    ended_losing_a_peer,
    ended_well_after,
    follows_the_end,
    near_end,
    something_failed,
    sort_exceptions,
)
from safelaunch.diagnosis.logs.exits import from_exits, own_exits, without_terminated
from safelaunch.diagnosis.logs.inner import with_inner_words
from safelaunch.diagnosis.logs.located import located, with_named_ranks, with_their_tracebacks
from safelaunch.diagnosis.logs.timeline import Candidate, Timeline
from safelaunch.model.logs import Ended, Event, LogFacts, LogLine, Raised, Sighting


def classify(facts: LogFacts) -> Timeline:
    """Sort what was found; only the last attempt of torch elastic counts."""
    last = _last_attempt(facts)
    exceptions = sort_exceptions(last)
    candidates, unexplained = _candidates(last, exceptions)
    return Timeline(
        facts=last,
        candidates=tuple(candidates),
        victims=tuple(_victims(last, exceptions)),
        outside=tuple(s for s in last.sightings if s.known.role == "outside"),
        unexplained=tuple(unexplained),
        launcher=exceptions.launcher,
        survived=exceptions.survived,
        cut=exceptions.cut,
        earlier=_earlier(facts, last),
        alarms=_alarms(last, exceptions),
    )


def _alarms(facts: LogFacts, exceptions: Exceptions) -> tuple[Sighting, ...]:
    """What speaks of a failure, in whatever words, and was not overcome: its process did not survive it, the same file
    does not say later that the job ended well, and the line is not known to mean nothing."""
    overcome = {(one.at.file, one.at.line) for one in exceptions.survived}
    overcome |= {(one.at.file, one.at.line) for one in facts.raised if one.background}
    overcome |= {(s.at.file, s.at.line) for s in facts.sightings if s.known.role == "note"}

    def went_on(s: Sighting) -> bool:
        # Programs log errors of which they think nothing; what torch, NCCL or a kernel says so ends more than a sample.
        logged = s.known.name == "error-level"
        later = any(end.at.file == s.at.file and end.at.line > s.at.line for end in facts.finished)
        return (
            ended_well_after(facts, s.at)
            or follows_the_end(facts, s.at)
            or (logged and (later or not near_end(facts, s.at)))
        )

    return tuple(
        s
        for s in facts.sightings
        if s.known.role != "note" and (s.at.file, s.at.line) not in overcome and not went_on(s)
    )


def _ends_of_ranks(facts: LogFacts) -> dict[int, Ended]:
    """The ends of ranks by their pids, without pids that ranks of several nodes have: those name nobody."""
    found: dict[int, Ended] = {}
    shared: set[int] = set()
    for end in facts.ended:
        if end.pid and end.rank is not None and found.setdefault(end.pid, end).rank != end.rank:
            shared.add(end.pid)
    return {pid: end for pid, end in found.items() if pid not in shared}


def _candidates(facts: LogFacts, exceptions: Exceptions) -> tuple[list[Candidate], list[Ended]]:
    """What may have been first, and the ends that nothing explains."""
    by_pid = _ends_of_ranks(facts)
    by_rank = own_exits(facts)
    victims = {one.rank for one in exceptions.consequences}
    found = []
    for one in exceptions.causes:
        end = by_rank.get(one.rank) if one.rank is not None else None
        found.append(from_handled(end, one) if ended_losing_a_peer(one) else from_raised(end, one))
    found = with_inner_words(facts, nccl.with_reasons(facts, attributed(facts, found, victims)))
    ended, unexplained = from_exits(facts, {one.rank for one in found} | victims, by_pid)
    found = of_loaders(facts, merged([*found, *_unless_ambiguous(ended)]))
    if something_failed(facts) or found or victims or _ends_with_a_cause(facts):
        found += from_messages(facts, found, victims, by_pid)
    found = located(facts, with_named_ranks(facts, with_their_tracebacks(facts, found)))
    found = deaths.with_reasons(facts, specific.with_reasons(facts, speaker.with_own_words(facts, found)))
    return unresolved.with_names(facts, found), without_terminated(unexplained)


def _ends_with_a_cause(facts: LogFacts) -> bool:
    """Whether a file ends soon after a message that says why a process failed, and does not say that all went well."""
    return any(
        near_end(facts, s.at) and not ended_well_after(facts, s.at) for s in facts.sightings if s.known.role == "cause"
    )


def _victims(facts: LogFacts, exceptions: Exceptions) -> list[tuple[int | None, LogLine]]:
    """Who only followed, with the line that says so: by exceptions, by messages, by watchdogs."""
    found = [(one.rank, one.at) for one in exceptions.consequences]
    found += [
        (s.rank if s.rank is not None else s.number("self"), s.at)
        for s in facts.sightings
        if s.known.role == "consequence" and not s.inside
        if s.known.name not in ANY_CONNECTION or TRANSPORT.search(s.at.text)
    ]
    return found + [(t.rank, t.at) for t in facts.timed_out]


def _unless_ambiguous(ended: list[Candidate]) -> list[Candidate]:
    """A fatal error by faulthandler without a rank comes last: it is of the one process that ended so, if it is one."""
    unmarked = [one for one in ended if one.rank is None and one.sources == {"faulthandler"}]
    others = [one for one in ended if one not in unmarked]
    if len(unmarked) == 1 and sum(one.alike == unmarked[0].alike for one in others) > 1:
        return [*others, replace(unmarked[0], times=2)]
    return [*others, *unmarked]


def before_the_last(facts: LogFacts) -> LogFacts:
    """The facts of the attempt before the last one; the same where there was none, or where the last one ended well."""
    last = _number_of_attempts(facts)
    if not last or facts.finished:
        return facts
    former = _of_attempt(facts, last - 1)
    return replace(former, attempt=last - 1, last=(), parting=())


def _number_of_attempts(facts: LogFacts) -> int:
    events: list[Event] = [*facts.raised, *facts.timed_out, *(end for end in facts.ended if end.code)]
    return max([facts.attempt, *(event.attempt for event in events)])


def _last_attempt(facts: LogFacts) -> LogFacts:
    last = _number_of_attempts(facts)
    return _of_attempt(facts, last) if last else facts


def _of_attempt(facts: LogFacts, last: int) -> LogFacts:
    return replace(
        facts,
        raised=tuple(e for e in facts.raised if e.attempt == last),
        timed_out=tuple(e for e in facts.timed_out if e.attempt == last),
        progress=tuple(e for e in facts.progress if e.attempt == last),
        desyncs=tuple(e for e in facts.desyncs if e.attempt == last),
        brought=tuple(e for e in facts.brought if e.attempt == last),
        ended=tuple(e for e in facts.ended if e.attempt == last),
        sightings=tuple(e for e in facts.sightings if e.attempt == last or e.known.role == "outside"),
    )


def _earlier(facts: LogFacts, last: LogFacts) -> tuple[Raised, ...]:
    """The exceptions of ranks in attempts, or jobs, before the last one."""
    of_last = {id(one) for one in last.raised}  # to compare each with each takes 20 s for 8,000 of them
    return tuple(one for one in facts.raised if id(one) not in of_last and not one.launcher and not one.background)

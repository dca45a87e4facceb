"""Verdicts of hangs and crashes, and what several rules say in them of who waits where."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.codes import CATALOGUE, EXIT_HANG, EXIT_SCRIPT_FAILED, Trait, has
from safelaunch.diagnosis.crash.first_failure import Failure, failures, is_relayed, retells, secondary
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import stack_of, unrecorded
from safelaunch.diagnosis.waitgraph.record import WORLD
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import at, is_waiting, label, names
from safelaunch.model import Case, Collective, Confidence, Location, RankFacts, Verdict


def hang_verdict(
    view: View,
    code: str,
    summary: str,
    culprits: tuple[int, ...],
    *,
    location: Location | None = None,
    call: Collective | None = None,
    because: tuple[str, ...] = (),
    remedy: str = "",
    confidence: Confidence = "high",
    conclusive: bool = False,
    waiting: Iterable[int] = (),
) -> Verdict:
    """A verdict of a hang: what is alike in all of them."""
    first: RankFacts | None = next((facts for facts in view.case.ranks if facts.rank in culprits), None)
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="hang",
        summary=summary,
        culprit_ranks=culprits,
        host=view.case.host,
        pid=first.pid or None if first is not None else None,
        location=location,
        operation=call.op if call is not None else None,
        seq=call.seq if call is not None else None,
        process_group=call.group if call is not None else None,
        because=because,
        confidence=confidence,
        remedy=remedy,
        exit_code=EXIT_HANG,
        conclusive=conclusive,
        waiting=tuple(sorted(waiting)),
    )


def crash_verdict(
    view: View,
    code: str,
    summary: str,
    culprits: list[Failure],
    *,
    location: Location | None = None,
    because: tuple[str, ...] = (),
    remedy: str = "",
    confidence: Confidence = "high",
) -> Verdict:
    """A verdict of a crash: what is alike in all of them. Pid and traceback are of the first rank that is named."""
    culprits = sorted(culprits, key=lambda failure: failure.rank)
    ranks = tuple(failure.rank for failure in culprits)
    error = culprits[0].facts.error if culprits else None
    lost = tuple(f"evidence of rank {f.rank} is missing: {gap}" for f in culprits[:1] for gap in f.facts.missing[:1])
    return Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="crash",
        summary=summary,
        culprit_ranks=ranks,
        host=view.case.host,
        pid=culprits[0].facts.pid if culprits else None,
        location=location,
        because=(*because, *after_effects(view.case, ranks), *waiting(view.case, ranks), *lost),
        secondary=secondary(view.case, ranks),
        confidence=confidence,
        remedy=remedy,
        traceback=error.traceback if error is not None else "",
        exit_code=EXIT_SCRIPT_FAILED,
    )


def after_effects(case: Case, culprits: tuple[int, ...]) -> tuple[str, ...]:
    """Who failed because of a lost peer, as one `because` line."""
    later = [f for f in failures(case) if f.consequence and f.rank not in culprits]
    if not later or not culprits:
        return ()
    told = all(is_relayed(failure.facts) or retells(case, failure.facts) for failure in later)
    why = "a peer had failed" if told else "the connection to a peer was lost"
    return (f"{names(f.rank for f in later)} failed only because {why}",)


def waiting(case: Case, culprits: tuple[int, ...]) -> tuple[str, ...]:
    """Who of the living was inside a collective, as one `because` line."""
    inside = [
        facts
        for facts in case.ranks
        if facts.exit is None and facts.error is None and facts.rank not in culprits
        if facts.collectives and not facts.collectives[-1].done
    ]
    if not inside:
        return ()
    last = inside[0].collectives[-1]
    return (f"{names(facts.rank for facts in inside)} waited in {last.op} #{last.seq}{at(last.location)}",)


def knows_no_cause(verdict: Verdict) -> bool:
    """Whether a verdict says how ranks ended, names none, and does not know why."""
    effect = has(verdict.code, Trait.EFFECT) and has(verdict.code, Trait.NOBODY)
    return effect and not verdict.culprit_ranks


def waiters(view: View) -> tuple[str, ...]:
    """Who waits where, for how long, in a line for each meeting: those that disagree, of a circle, then most ranks."""
    found, now = view.graph, view.now
    ranks = view.by_rank
    meetings: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in found.waits:
        place = wait.call.location or user_frame(stack_of(ranks[wait.rank], wait.thread))
        meetings.setdefault((wait.call.group, label(wait.call), at(place)), []).append(wait)
    lines = []
    groups = {wait.call.group for wait in found.waits if not unrecorded(wait.call)}
    several = len(groups) > 1 or (view.from_dumps and bool(groups - {WORLD}))
    order = sorted(meetings.items(), key=lambda one: (all(w.rank not in found.cycle for w in one[1]), -len(one[1])))
    for (_, what, where), waits in sorted(order, key=lambda one: not any(w.differing for w in one[1])):
        since = now - min(wait.call.t for wait in waits)
        group = f" of group {waits[0].call.group}" if several else ""
        seconds = "" if view.from_dumps else f" for {since:.0f} s"
        lines.append(f"{is_waiting({w.rank for w in waits})} in {what}{group}{where}{seconds}")
    return tuple(lines)


def place_of(view: View, wait: Wait) -> Location | None:
    """The line at which a rank waits: that of the call, else where its stack leaves the user's program."""
    if wait.call.location is not None:
        return wait.call.location
    facts = view.by_rank[wait.rank]
    return user_frame(stack_of(facts, wait.thread))

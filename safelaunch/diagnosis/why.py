"""How a verdict came about, in lines: which rules were asked, what each lacked, and which waits the graph holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from safelaunch.diagnosis import Examination, examine, rules
from safelaunch.diagnosis.rule import Rule
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import threads_inside
from safelaunch.diagnosis.waitgraph.counters import UNTOLD
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import at, is_waiting, label, names
from safelaunch.model import Case

WIDTH = 28  # of a rule's name


def lines(case: Case) -> tuple[str, ...]:
    """The verdict's code and rule; the rules that were not asked, with what each lacked; those that were asked and did
    not conclude; those that come after it; and the waits, each with the sources that say so."""
    view = View(case)
    found = examine(view)
    return (*_rules(found, case), *_waits(view))


def _rules(found: Examination, case: Case) -> Iterator[str]:
    rule = found.concluded
    yield f"{found.verdict.code} was concluded by {_name(rule)}"
    if found.refined:
        yield f"refined by: {', '.join(found.refined)}"
    asked = {rule, *found.passed, *(each for each, _ in found.skipped)}
    if found.skipped:
        yield "rules that were not asked, and what they lacked:"
        yield from (f"  {_name(each):{WIDTH + 11}} {lack}" for each, lack in found.skipped)
    if found.passed:
        yield "rules that were asked and did not conclude:"
        yield from (f"  {_name(each)}" for each in found.passed)
    later = [each for each in rules.BY_KIND[case.incident.kind] if each not in asked]
    if later:
        yield f"rules that come later: {', '.join(each.name for each in later)}"


def _name(rule: Rule) -> str:
    return f"{rule.name} ({rule.stage.name.lower().replace('_', ' ')})"


def _waits(view: View) -> Iterator[str]:
    """A line for those who wait alike, by the same sources."""
    graph = view.graph
    if not graph.waits:
        yield "no rank is known to wait for another in a call"
    alike: dict[str, list[int]] = {}
    away = {id(wait.away): wait.away for wait in graph.waits if wait.away}  # waits in one group share them
    unknown = {key: f", and perhaps for {names(who)} (of which nothing is known)" for key, who in away.items()}
    for wait in graph.waits:
        what = f"in {label(wait.call)} of group {wait.call.group}{at(wait.call.location)}{_whom(wait)}"
        what += unknown.get(id(wait.away), "")
        alike.setdefault(f"{what} [{', '.join(_sources(view, wait)) or 'no source'}]", []).append(wait.rank)
    for other in graph.external:
        whose = f", which {names((other.on,))} has" if other.on not in (None, other.rank) else ""
        asked = ", and who has it waits for a word from here" if other.asked else ""
        what = f"for {other.resource.called}{whose}{asked} [{other.source}]"
        alike.setdefault(what, []).append(other.rank)
    if alike:
        yield "waits, and what says so:"
    yield from (f"  {is_waiting(ranks)} {what}" for what, ranks in alike.items())
    late = sorted({rank for rank, _ in graph.sinks})
    if late:
        yield f"at the end of the chains of waits in calls: {names(late)}"
    if graph.ends and graph.ends != graph.sinks:
        yield f"of these wait for no other rank by other means: {names({rank for rank, _ in graph.ends})}"
    if graph.cycle:
        yield f"in a circle: {names(graph.cycle)}"


def _whom(wait: Wait) -> str:
    whom = (
        ("for", wait.on),
        ("for", wait.gone, "which has left"),
        ("for", wait.stopped, "which is stopped"),
        ("against", wait.differing, "which made another call"),
    )
    return "".join(f", {how} {names(ranks)}{_more(more)}" for how, ranks, *more in whom if ranks)


def _more(words: Iterable[str]) -> str:
    return "".join(f" ({word})" for word in words)


def _sources(view: View, wait: Wait) -> Iterator[str]:
    """What says that a rank is inside this call."""
    facts, call = view.by_rank[wait.rank], wait.call
    if call.op == UNTOLD:
        yield "counters"
    if facts.watched and any(_same(own, call) and not own.done for own in facts.collectives):
        yield "record"
    if any(_same(own, call) and not own.done for own in facts.recorded or ()):
        yield "Flight Recorder"
    if threads_inside(facts):
        yield "stack"


def _same(one: object, other: object) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("group", "seq"))

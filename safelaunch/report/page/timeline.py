"""The timeline of every rank, drawn: calls, phases, how long it has been quiet, and its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from safelaunch.model import Case, Collective, RankFacts, Verdict
from safelaunch.report.page.element import Html, cell, joined, shape, tag
from safelaunch.report.page.subject import call_name, names, place

ROWS = 48  # ranks: what fits on two pages of paper
LEFT, WIDTH, ROW, TOP = 96, 1000, 22, 30  # pixels
LEAST_S = 5.0  # before the incident: the calls that went well
BEFORE = 2.0  # times what passed since the incident
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MOST_TICKS = 12


def section(case: Case, verdict: Verdict | None) -> Html | None:
    """The drawing; nothing where no times are known."""
    span = _span(case)
    if span is None:
        return None
    culprits = verdict.culprit_ranks if verdict is not None else ()
    shown = _chosen(case.ranks, culprits)
    left_out = {facts.rank for facts in case.ranks} - {facts.rank for facts in shown}
    height = TOP + ROW * len(shown) + 8
    return tag(
        "section",
        tag("h2", "Timeline"),
        tag(
            "p",
            "Seconds from the incident (dashed line). ",
            *_legend(),
            class_="dim",
        ),
        tag(
            "div",
            tag(
                "svg",
                tag("title", "timeline of the ranks"),
                *_axis(case, span, height),
                *(_row(facts, number, case, span, facts.rank in culprits) for number, facts in enumerate(shown)),
                viewBox=f"0 0 {LEFT + WIDTH + 20} {height}",
                width=LEFT + WIDTH + 20,
                height=height,
                role="img",
                font_size=13,
                font_family="system-ui, sans-serif",
            ),
            class_="drawing",
        ),
        tag("p", f"Not drawn: {names(left_out)}.") if left_out else None,
    )


def _legend() -> Iterator[Html]:
    for class_, meaning in (
        ("call", "a call that came back"),
        ("inside", "inside a call"),
        ("phase", "a phase (loader, checkpoint, ...)"),
        ("quiet", "no progress"),
        ("end", "exception or end"),
    ):
        yield joined((tag("span", "", class_=f"key {class_}"), f" {meaning}   "))


def _span(case: Case) -> tuple[float, float] | None:
    """First and last moment that are drawn."""
    begun = [call.t for facts in case.ranks for call in facts.calls if call.t > 0]
    ended = [moment for facts in case.ranks for moment in _ends(facts)]
    last = max([*begun, *ended, *([case.now] if case.now else []), case.incident.t], default=0.0)
    if last <= 0 or not (begun or ended):
        return None
    incident = case.incident.t if 0 < case.incident.t <= last else last
    first = incident - max(LEAST_S, BEFORE * (last - incident))
    earliest = min([*begun, *ended, incident])
    first = max(first, min(earliest, incident - 0.5))
    return (first, last) if math.isfinite(last - first) else None


def _ends(facts: RankFacts) -> list[float]:
    return [moment for moment in (facts.exit and facts.exit.t, facts.error and facts.error.t) if moment]


def _chosen(ranks: Sequence[RankFacts], culprits: Sequence[int]) -> list[RankFacts]:
    """The culprits, and as many of the others as there is room for: those first that stand alone at their place."""
    if len(ranks) <= ROWS:
        return list(ranks)
    crowd: dict[str, int] = {}
    for facts in ranks:
        crowd[place(facts)] = crowd.get(place(facts), 0) + 1
    by_weight = sorted(ranks, key=lambda facts: (facts.rank not in culprits, crowd[place(facts)], facts.rank))
    return sorted(by_weight[:ROWS], key=lambda facts: facts.rank)


def _x(t: float, span: tuple[float, float]) -> float:
    first, last = span
    share = (min(max(t, first), last) - first) / (last - first or 1.0)
    return round(LEFT + share * WIDTH, 1)


def _axis(case: Case, span: tuple[float, float], height: int) -> Iterator[Html]:
    first, last = span
    incident = case.incident.t if first <= case.incident.t <= last else last
    step = next((tick for tick in TICKS if (last - first) / tick <= MOST_TICKS), (last - first) / MOST_TICKS)
    begin = int((first - incident) / step)
    # Counted, not added up: among large numbers a step further is the same number.
    for number in range(begin, begin + 1 + int((last - incident) / step - begin)):
        x = _x(incident + number * step, span)
        yield shape("line", "grid", x1=x, x2=x, y1=TOP - 6, y2=height)
        yield shape("text", "tick", f"{number * step:+g} s" if number else "0", x=x, y=TOP - 12)
    x = _x(incident, span)
    yield shape("line", "incident", x1=x, x2=x, y1=TOP - 6, y2=height)


def _row(facts: RankFacts, number: int, case: Case, span: tuple[float, float], culprit: bool) -> Html:
    y = TOP + number * ROW
    end = min(_ends(facts), default=span[1])
    parts = [shape("text", "strong name" if culprit else "name", f"rank {facts.rank}", x=LEFT - 8, y=y + 14)]
    parts.append(_bar("life", span[0], end, y + 8, 4, span, f"rank {facts.rank}"))
    if facts.quiet_s and case.now:
        since = case.now - facts.quiet_s
        parts.append(_bar("quiet", since, end, y + 6, 8, span, f"no progress for {facts.quiet_s:.1f} s"))
    for phase in facts.phases:
        parts.append(_bar("phase", phase.since, end, y + 15, 4, span, f"phase {phase.name}"))
    for call in facts.calls:
        if call.t >= span[0]:
            parts.append(_call(call, y, end, span))
    parts += [_end(moment, text, y, span) for moment, text in _told_ends(facts)]
    return tag("g", *parts, class_="culprit" if culprit else None)


def _call(call: Collective, y: int, end: float, span: tuple[float, float]) -> Html:
    told = call_name(call)
    if call.done or call.issued or call.raised:
        how = "issued" if call.issued else "raised" if call.raised else "came back"
        x = _x(call.t, span)
        title = tag("title", f"{told}, {how}")
        return shape("rect", "end" if call.raised else "call", title, x=x, y=y + 3, width=3, height=14)
    return _bar("inside", call.t, end, y + 5, 10, span, f"{told}, not come back after {max(0.0, end - call.t):.1f} s")


def _told_ends(facts: RankFacts) -> Iterator[tuple[float, str]]:
    if facts.error is not None and facts.error.t:
        yield facts.error.t, facts.error.type
    if facts.exit is not None and facts.exit.t:
        yield facts.exit.t, f"exit {facts.exit.code}"


def _end(t: float, what: str, y: int, span: tuple[float, float]) -> Html:
    x = _x(t, span)
    d = f"M{x - 5},{y + 5} L{x + 5},{y + 15} M{x + 5},{y + 5} L{x - 5},{y + 15}"
    return shape("path", "end", tag("title", cell(what)), d=d)


def _bar(kind: str, start: float, end: float, y: int, height: int, span: tuple[float, float], title: str) -> Html:
    x, to = _x(start, span), _x(end, span)
    width = max(1.0, round(to - x, 1))
    return shape("rect", kind, tag("title", cell(title)), x=x, y=y, width=width, height=height)

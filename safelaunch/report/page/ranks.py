"""The table of ranks. Ranks that stand alike share a row where there are many."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch import redaction
from safelaunch.model import Case, RankFacts, Verdict
from safelaunch.report.page.element import Html, cell, tag
from safelaunch.report.page.subject import call_name, names, place, state

EACH = 16  # ranks that get a row of their own
ROWS = 64
HEAD = ("ranks", "pid", "state", "at", "last collective", "phase", "step", "batch", "quiet", "could not be had")


def section(case: Case, verdict: Verdict | None) -> Html:
    """A row for each rank, or for each kind of rank."""
    culprits = verdict.culprit_ranks if verdict is not None else ()
    rows: dict[object, list[RankFacts]] = {}
    for facts in case.ranks:
        alike: object = facts.rank if len(case.ranks) <= EACH else (facts.rank in culprits, _words(facts))
        rows.setdefault(alike, []).append(facts)
    many = len(rows) > EACH  # then the culprits come first: the last rows may not be shown
    ordered = sorted(rows.values(), key=lambda row: (many and row[0].rank not in culprits, row[0].rank))
    cells = [_cells(row, row[0].rank in culprits) for row in ordered[:ROWS]]
    filled = [column for column in range(len(HEAD)) if any(row[column] for row in cells)]
    head = tag("tr", *(tag("th", HEAD[column]) for column in filled))
    body = [
        tag("tr", *(tag("td", cell(texts[column])) for column in filled), class_=_mark(row[0].rank in culprits))
        for row, texts in zip(ordered, cells, strict=False)
    ]
    rest = [facts for row in ordered[ROWS:] for facts in row]
    elsewhere = case.world_size - len(case.ranks)
    return tag(
        "section",
        tag("h2", "Ranks"),
        tag("table", tag("thead", head), tag("tbody", *body)),
        *(block for facts in case.ranks if facts.rank in culprits for block in _last_lines(facts)),
        tag("p", f"... and {names(facts.rank for facts in rest)}, in evidence/case.json") if rest else None,
        tag("p", f"{elsewhere} of {case.world_size} ranks are on other nodes, or left nothing")
        if elsewhere > 0
        else None,
    )


def _last_lines(facts: RankFacts) -> tuple[Html, ...]:
    if not facts.last_lines:
        return ()
    title = tag("h3", f"The last lines of rank {facts.rank}")
    return title, tag("pre", *(cell(line) + "\n" for line in redaction.lines(facts.last_lines)))


def _words(facts: RankFacts) -> tuple[str, ...]:
    last = facts.calls[-1] if facts.calls else None
    how = (
        "" if last is None or last.done else " (raised)" if last.raised else " (issued)" if last.issued else " (inside)"
    )
    phase = ", ".join(phase.name for phase in facts.phases)
    missing = facts.gaps
    return (state(facts), place(facts), f"{call_name(last)}{how}" if last is not None else "", phase, missing)


def _cells(row: Sequence[RankFacts], culprit: bool) -> tuple[str, ...]:
    how, where, last, phase, missing = _words(row[0])
    quiet = [facts.quiet_s for facts in row if facts.quiet_s is not None]
    return (
        names(facts.rank for facts in row).partition(" ")[2] + (" (culprit)" if culprit else ""),
        str(row[0].pid) if len(row) == 1 else "",
        how,
        where,
        last,
        phase,
        _range([facts.step for facts in row]),
        _range([facts.batch for facts in row]),
        f"{max(quiet):.1f} s" if quiet else "",
        missing,
    )


def _mark(culprit: bool) -> str | None:
    return "culprit" if culprit else None


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return "" if not high else str(low) if low == high else f"{low}-{high}"

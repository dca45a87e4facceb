"""The calls around the number at which ranks part, as the ranks' own record and as the Flight Recorder has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from safelaunch.model import Case, Collective, RankFacts, Verdict
from safelaunch.report.page.element import Html, cell, joined, tag
from safelaunch.report.page.subject import names

BEFORE, AFTER = 3, 2
MESSAGES = ("send", "recv", "isend", "irecv")
ROWS = 60
HEAD = ("#", "operation", "input", "at", "came back on", "inside on", "issued on", "raised on")


def section(case: Case, verdict: Verdict | None) -> Html | None:
    """A table for each source that knows of calls."""
    own = _table("As each rank recorded it", case, verdict, lambda facts: facts.collectives)
    recorded = _table("Flight Recorder", case, verdict, lambda facts: facts.recorded or ())
    if own is None and recorded is None:
        return None
    return tag("section", tag("h2", "Collectives around the incident"), own, recorded)


def _table(
    title: str, case: Case, verdict: Verdict | None, calls_of: Callable[[RankFacts], Sequence[Collective]]
) -> Html | None:
    focus = _focus(case, verdict, calls_of)
    if focus is None:
        return None
    group, seq = focus
    low, high = seq - BEFORE, seq + AFTER
    rows: dict[tuple[int, str, str, str], dict[str, list[int]]] = {}
    arrived: dict[int, set[int]] = {}
    reach: dict[int, tuple[int, int]] = {}
    for facts in case.ranks:
        for call in calls_of(facts):
            if call.group != group:
                continue
            first, last = reach.get(facts.rank, (call.seq, call.seq))
            reach[facts.rank] = (min(first, call.seq), max(last, call.seq))
            arrived.setdefault(call.seq, set()).add(facts.rank)
            if low <= call.seq <= high:
                key = (call.seq, call.op + _peer(call), _input(call), _at(call))
                rows.setdefault(key, {}).setdefault(_how(call), []).append(facts.rank)
    members = next((known.ranks for known in case.groups if known.name == group), None)
    here = [facts.rank for facts in case.ranks if members is None or facts.rank in set(members)]
    body = [_row(key, hows, key[0] == seq) for key, hows in sorted(rows.items(), key=lambda item: item[0])[:ROWS]]
    late = [rank for rank in here if rank in reach and reach[rank][1] < seq]
    unknown = [rank for rank in here if rank not in reach]
    behind = [rank for rank in here if rank in reach and seq < reach[rank][0]]
    # Messages are numbered for each pair of ranks: nobody else is missed at their number.
    messages = all(key[1].startswith(MESSAGES) for key in rows if key[0] == seq)
    told = (
        []
        if messages
        else [
            f"not at #{seq}: {_lasts(late, reach)}" if late else "",
            f"{names(unknown)}: no call of this group in the record" if unknown else "",
            f"{names(behind)}: #{seq} is no longer in the record" if behind else "",
        ]
    )
    return joined(
        (
            tag("h3", f"{title}, group {group} around #{seq}"),
            tag("table", tag("thead", tag("tr", *(tag("th", name) for name in HEAD))), tag("tbody", *body)),
            *(tag("p", line) for line in told if line),
        )
    )


def _focus(
    case: Case, verdict: Verdict | None, calls_of: Callable[[RankFacts], Sequence[Collective]]
) -> tuple[str, int] | None:
    """The group and the number that the verdict names; else where most ranks are inside; else where most have been."""
    inside: Counter[tuple[str, int]] = Counter()
    last: Counter[tuple[str, int]] = Counter()
    known: set[tuple[str, int]] = set()
    for facts in case.ranks:
        calls = calls_of(facts)
        known.update((call.group, call.seq) for call in calls)
        inside.update({(call.group, call.seq) for call in calls if not (call.done or call.issued or call.raised)})
        last.update([(calls[-1].group, calls[-1].seq)] if calls else [])
    if verdict is not None and verdict.seq is not None and (verdict.process_group, verdict.seq) in known:
        return str(verdict.process_group), verdict.seq
    best = (inside or last).most_common(1)
    return best[0][0] if best else None


def _how(call: Collective) -> str:
    return "raised" if call.raised else "done" if call.done else "issued" if call.issued else "inside"


def _peer(call: Collective) -> str:
    return f" (rank {call.peer})" if call.peer is not None else ""


def _input(call: Collective) -> str:
    return f"{call.numel:,} {call.dtype}".strip() if call.numel >= 0 else call.dtype


def _at(call: Collective) -> str:
    return f"{call.location.file.rpartition('/')[2]}:{call.location.line}" if call.location is not None else ""


def _row(key: tuple[int, str, str, str], hows: dict[str, list[int]], focus: bool) -> Html:
    ranks = (
        names(hows[how]).partition(" ")[2] if how in hows else "" for how in ("done", "inside", "issued", "raised")
    )
    return tag("tr", *(tag("td", cell(text)) for text in (*map(str, key), *ranks)), class_="focus" if focus else None)


def _lasts(ranks: Sequence[int], reach: dict[int, tuple[int, int]]) -> str:
    by_last: dict[int, list[int]] = {}
    for rank in ranks:
        by_last.setdefault(reach[rank][1], []).append(rank)
    parts = [f"{names(who)} (last: #{last})" for last, who in sorted(by_last.items())]
    return ", ".join(parts[:8]) + (f" and {len(parts) - 8} more" if len(parts) > 8 else "")

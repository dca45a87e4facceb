"""Ranks that look again and again for what another rank is to do: a file, a variable of a server, a flag."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.diagnosis.blame.rank_guard import LOCAL, MAIN_RANK, RANK, is_for_one
from safelaunch.diagnosis.lines import Lines
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.diagnosis.waitgraph.flags import looks_for
from safelaunch.diagnosis.wording import at, in_brackets, label, names
from safelaunch.model import Condition, RankFacts, Verdict

NOT_ONE = re.compile(rf"^{RANK}\s*(?:!=\s*(?P<rank>\d+)|>\s*0)$|^{RANK}$", re.IGNORECASE)
NOT = re.compile(r"^not\s+")


def polled_for(view: View) -> Verdict | None:
    """Ranks look again and again for something that one rank alone was to do, and that rank waits for them in a
    collective.

    How it was concluded: each rank that has not come stands in a loop that only sleeps and looks, such as `while not
    os.path.exists(path): time.sleep(1)`. The loop is below the `else` of a condition for one rank. That rank has come
    out of its own branch, and is inside a collective. Confidence is medium: the others may look in another place than
    the one in which it was done, such as a disk of their own node.

    What to do: see what the named rank did in its branch: an exception that it caught, an early return, another path.
    """
    graph = view.graph
    ranks = view.by_rank
    if any(thread != ranks[rank].pid for rank, thread in graph.sinks):
        return None
    lines = view.lines
    waits = {wait.rank: wait for wait in graph.waits}
    looks = {rank: looks_for(ranks[rank], lines) for rank, _ in graph.sinks}
    makers = {_left_out(ranks[rank], lines, [ranks[other] for other in waits]) for rank in looks}
    maker = makers.pop() if len(makers) == 1 else None
    who = sorted(looks)
    if maker is None or not all(looks.values()) or not set(who) & set(waits[maker].blockers):
        return None
    wait = waits[maker]
    first = looks[who[0]]
    assert first is not None
    verb, they = ("looks", "waits") if len(who) == 1 else ("look", "wait")
    awaited = {look.awaited(dict(ranks[rank].looks_at)) for rank, look in looks.items() if look is not None}
    what = awaited.pop() if len(awaited) == 1 else first.awaited({})
    stuck = place_of(view, wait)
    verdict = hang_verdict(
        view,
        "SL311",
        f"{names(who)} {they} for {what}{in_brackets(first.place)}, and rank {maker}, which is to do that, "
        f"waits for {names(who)} in {label(wait.call)}{in_brackets(stuck)}",
        (maker,),
        location=first.place,
        call=wait.call,
        because=(
            f"{names(who)} {verb} again and again{at(first.place)}: `{first.text}`, where rank {maker} does not come",
            *_may_have_caught(view, who[0], maker),
            *waiters(view),
        ),
        remedy=f"see what rank {maker} did instead: an exception that was caught, an early return, another path",
        confidence="medium",
        waiting=(*who, *waits),
    )
    return replace(verdict, pid=None)  # the line is not that rank's


def _may_have_caught(view: View, rank: int, maker: int) -> tuple[str, ...]:
    """The `except` clauses around what a rank does, which its maker may have done before it."""
    found = [
        f"{text}` ({line.file}:{number})"
        for frame in frames_of(view.by_rank[rank], view.by_rank[rank].pid)
        if (line := view.lines.get((frame.file, frame.line))) is not None
        for number, text in line.caught
    ]
    return (f"`{found[0]} goes on after an exception, which rank {maker} may have met there",) if found else ()


def _left_out(facts: RankFacts, lines: Lines, others: list[RankFacts]) -> int | None:
    """The one of these ranks that does not come to where a rank stands, by a condition above it."""
    for frame in frames_of(facts, facts.pid):
        line = lines.get((frame.file, frame.line))
        for condition in line.conditions if line is not None else ():
            out = [other for other in others if keeps_out(condition, other)]
            if len(out) == 1:
                return out[0].rank if not _is_below(out[0], frame.file, condition.line, lines) else None
    return None


def _is_below(facts: RankFacts, file: str, number: int, lines: Lines) -> bool:
    """Whether a rank is still in its own branch of the `if` at a line: then it waits for what is called there."""
    own = [lines.get((frame.file, frame.line)) for frame in frames_of(facts, facts.pid) if frame.file == file]
    return any(line is not None and line.is_below(number) for line in own)


def keeps_out(condition: Condition, facts: RankFacts) -> bool:
    """Whether a condition holds on all ranks but this one, of those of its node."""
    text = condition.text
    if not condition.holds or NOT.match(text):
        opposite = Condition(condition.line, NOT.sub("", text) if condition.holds else text)
        return is_for_one(opposite, facts) and (not MAIN_RANK.match(opposite.text) or facts.local_rank == 0)
    tested = NOT_ONE.match(text)
    own = "local_rank" if LOCAL.search(text) else "rank"
    return tested is not None and is_for_one(Condition(condition.line, f"{own} == {tested['rank'] or 0}"), facts)

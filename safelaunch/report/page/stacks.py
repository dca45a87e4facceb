"""Stacks, grouped by identical frames, the smallest group first: who stands alone is worth a look."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch import redaction
from safelaunch.model import Case, Location, RankFacts, Stack, Verdict
from safelaunch.report.page.element import Html, cell, tag
from safelaunch.report.page.subject import names
from safelaunch.user_code import is_user_code

GROUPS = 30
FRAMES = 60
LINES = 80  # of a traceback


def section(case: Case, verdict: Verdict | None) -> Html | None:
    """Where the living stand, what the dead left, and of whom there is neither."""
    culprits = verdict.culprit_ranks if verdict is not None else ()
    stacks: dict[object, list[RankFacts]] = {}
    errors: dict[object, list[RankFacts]] = {}
    without: dict[str, list[int]] = {}
    children: dict[object, list[str]] = {}
    shown: dict[object, Stack] = {}
    for facts in case.ranks:
        stack = facts.stack or facts.fault
        if facts.error is not None:
            errors.setdefault((facts.error.traceback or facts.error.message), []).append(facts)
        if stack is not None and stack.frames:
            stacks.setdefault(stack.frames, []).append(facts)
        elif facts.error is None:
            reason = facts.gaps or ("the rank ended without leaving one" if facts.exit else "none taken")
            without.setdefault(reason, []).append(facts.rank)
        for child in facts.children:
            if child.stack is not None and child.stack.frames:
                children.setdefault(child.stack.frames, []).append(
                    f"{child.name or 'process'} {child.pid} of rank {facts.rank}"
                )
                shown[child.stack.frames] = child.stack
    if not (stacks or errors or without):
        return None
    groups = _smallest_first(stacks, culprits)
    return tag(
        "section",
        tag("h2", "Stacks"),
        *(_traceback(group, culprits) for group in _smallest_first(errors, culprits)[:GROUPS]),
        *(_group(group, culprits) for group in groups[:GROUPS]),
        tag("p", f"... and {len(groups) - GROUPS} more kinds of stacks, in evidence/")
        if len(groups) > GROUPS
        else None,
        *(
            _frames(
                f"{', '.join(who[:4])}{f' and {len(who) - 4} more' if len(who) > 4 else ''}",
                shown[key].frames,
                "py-spy",
            )
            for key, who in list(children.items())[:GROUPS]
        ),
        *(
            tag("p", f"No stack of {names(ranks)}: {cell(reason)}", class_="dim")
            for reason, ranks in list(without.items())[:GROUPS]
        ),
    )


def _smallest_first(groups: dict[object, list[RankFacts]], culprits: Sequence[int]) -> list[list[RankFacts]]:
    return sorted(groups.values(), key=lambda group: (len(group), group[0].rank not in culprits, group[0].rank))


def _title(group: Sequence[RankFacts], culprits: Sequence[int], verb: str) -> str:
    ranks = [facts.rank for facts in group]
    mark = " (culprit)" if any(rank in culprits for rank in ranks) else ""
    return (
        f"{names(ranks)} {'is' if len(ranks) == 1 else 'are'} {verb}{mark}"
        if verb == "here"
        else f"{names(ranks)} {verb}{mark}"
    )


def _group(group: Sequence[RankFacts], culprits: Sequence[int]) -> Html:
    stack = group[0].stack or group[0].fault
    assert stack is not None
    verb = "here" if group[0].stack is not None else "left this at a fatal signal"
    return _frames(_title(group, culprits, verb), stack.frames, stack.source)


def _frames(title: str, frames: Sequence[Location], source: str) -> Html:
    rest = f"  ... {len(frames) - FRAMES} more frames" if len(frames) > FRAMES else None
    return tag(
        "div",
        tag("h3", title),
        tag("pre", *(_frame(frame) for frame in frames[:FRAMES]), rest),
        tag("p", f"innermost first, by {source}; frames of your program stand out", class_="dim"),
        class_="stack",
    )


def _frame(frame: Location) -> Html:
    line = f"{cell(frame.file)}:{frame.line}" + (f" in {cell(frame.function)}" if frame.function else "")
    return tag("span", line + "\n", class_="own" if is_user_code(frame.file) else "library")


def _traceback(group: Sequence[RankFacts], culprits: Sequence[int]) -> Html:
    error = group[0].error
    assert error is not None
    # Before its middle is left out: what announces a secret may stand there.
    lines = redaction.text(error.traceback or f"{error.type}: {error.message}").splitlines()
    if len(lines) > LINES:
        lines = [*lines[:20], f"  ... {len(lines) - LINES} lines, all in evidence/ ...", *lines[20 - LINES :]]
    return tag(
        "div",
        tag("h3", _title(group, culprits, f"raised {cell(error.type)}")),
        tag("pre", "\n".join(lines)),
        class_="stack",
    )

"""Waits for a flag: ranks that look again and again for what somebody is to do, in a loop of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.diagnosis.lines import Lines, by_place
from safelaunch.diagnosis.waitgraph.calls import frames_of
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Resource
from safelaunch.model import Case, Condition, Location, RankFacts, SourceLine

# Calls of Python's own that start no collective, by their first name.
IDLE = re.compile(
    r"(?:time|os|sys|logging|logger|log|json|math|random|datetime|shutil|glob|re|pathlib|Path|print|open|len|range|min|max"
    r"|int|float|str|list|dict|set|tuple|sorted|enumerate|zip|isinstance|getattr|repr|self\.\w*log\w*|warnings|sleep|exists|isfile)\b"
)
GETS_ON = re.compile(r":=|\.read\w*\(|\bnext\(|\.recv\w*\(")  # a condition that takes something: no look
ENDLESS = {"True", "1"}
OF_FILE = re.compile(
    r"(?P<no>not\s+)?(?:[\w.]*\b(?:l?exists|isfile|isdir)\((?P<path>[^()]+)\)|(?P<own>[\w.]+)\.(?:exists|is_file|is_dir)\(\))"
)
FLAG = Kind("`{}` to change")


class Look(NamedTuple):
    """Where a rank looks again and again, the condition that it looks at, and whether it goes on while that holds."""

    place: Location
    text: str
    holds: bool = True

    def awaited(self, paths: dict[str, str]) -> str:
        """What it waits for, in words: `the lock file /data/lock to be removed`.

        Args:
            paths: what names of the program hold.
        """
        tested = OF_FILE.fullmatch(self.text)
        if tested is None:
            return f"`{self.text}` to become {'false' if self.holds else 'true'}"
        name = tested["path"] or tested["own"]
        path = paths.get(name, "")
        what = "lock file" if "lock" in f"{name} {path.rpartition('/')[2]}".lower() else "file"
        there = bool(tested["no"]) != self.holds  # it goes on while the file is there
        return f"the {what} {path or f'`{name}`'} to {'be removed' if there else 'be made'}"


def waits(case: Case) -> Iterator[ExternalWait]:
    """Main threads in such loops, by their lines. Who is to do what they look for, a loop does not tell."""
    lines = by_place(case.source)
    for facts in case.ranks:
        looks = looks_for(facts, lines)
        if looks is not None:
            yield ExternalWait(facts.rank, facts.pid, Resource(FLAG, looks[1]), "stack")


def looks_for(facts: RankFacts, lines: Lines) -> Look | None:
    """Where a rank sleeps and looks again and again, and for what: the condition of a loop that does nothing else."""
    frames = frames_of(facts, facts.pid)
    line = lines.get((frames[0].file, frames[0].line)) if frames else None
    if line is None or not line.loops:
        return None
    start = line.loops[-1][0]
    if line.line == start:
        head = line.text.removeprefix("while ").rstrip(":")
        return Look(frames[0], head) if line.text.startswith("while ") else None
    test = _test(line, start)
    calls = [name for number, name in line.ahead if test is not None and number == test.line]
    if test is None or GETS_ON.search(test.text) or not calls or not all(map(IDLE.match, calls)):
        return None
    return Look(frames[0], test.text, test.holds)


def _test(line: SourceLine, start: int) -> Condition | None:
    """What ends the innermost loop around a line: its own condition, or, where it has none that can change, the `if`
    above the line that leaves it."""
    own = next((each for each in reversed(line.conditions) if each.line == start), None)
    if own is not None and own.text not in ENDLESS:
        return own
    return next((each for each in reversed(line.conditions) if each.line > start and not each.holds), None)

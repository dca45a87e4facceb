"""Why a rank may have left a loop, or skipped a call in it, as the source around its peers' call has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from safelaunch.diagnosis.lines import Lines
from safelaunch.model import Location, SourceLine, WayOut

# Tests that count steps come out alike on all ranks: they tell nothing.
COUNTS = re.compile(
    r"^\w*(?:step|iter|epoch|batch|idx|count|num)\w*(?:\s*\+\s*1)?\s*(?:[<>]=?|==)\s*[\w.]+$|^[ijn]\s*[<>=]+", re.I
)
SHOWN = 2
AFTER_AN_EXCEPTION = (
    "one rank alone meets an exception: let all agree (all_reduce a flag) before a step is skipped or the loop is left"
)
EACH_ALIKE = "let all ranks decide together, by an all_reduce of the decision, whether a pass is cut short"
TOGETHER = "let all ranks decide together when to leave the loop: all_reduce what they decide by"


@dataclass(frozen=True)
class Ways:
    """What the source shows: `because` in lines, and what to do about it; both empty where it shows nothing."""

    because: tuple[str, ...] = ()
    remedy: str = ""


def ways_out(frames: Iterable[Location], lines: Lines, *, left: bool = True) -> Ways:
    """The ways past a call: `break`, `continue` and `return` of the loops around it, and an `except` around it.

    Args:
        frames: of a rank that is in the call, innermost first.
        lines: of the source.
        left: a loop was left, and not a call skipped alone.
    """
    seen = [line for frame in frames if (line := lines.get((frame.file, frame.line))) is not None]
    caught = [text for line in seen for text in _caught(line)]
    out = [(line, way) for line in seen for way in line.exits if _counts(line, way)]
    in_handlers = [in_words(line.file, way) for line, way in out if way.handler]
    by_tests = [
        in_words(line.file, way) for line, way in out if not way.handler and way.test and way.word != "continue"
    ]
    if in_handlers or caught:
        return Ways(tuple(dict.fromkeys([*in_handlers, *caught]))[:SHOWN], AFTER_AN_EXCEPTION)
    return Ways(tuple(dict.fromkeys(by_tests))[:SHOWN], TOGETHER) if by_tests and left else Ways()


def cut_short(frames: Iterable[Location], lines: Lines) -> Ways:
    """The tests by which a `continue` above a call leaves it out: a rank that does so has come to the end of its loop
    with a call less. Arguments are as for `ways_out`."""
    seen = [line for frame in frames if (line := lines.get((frame.file, frame.line))) is not None]
    found = [
        in_words(line.file, way)
        for line in seen
        for way in line.exits
        if way.word == "continue" and way.test and _counts(line, way)
    ]
    return Ways(tuple(dict.fromkeys(found))[:SHOWN], EACH_ALIKE) if found else Ways()


def _counts(line: SourceLine, way: WayOut) -> bool:
    """Whether a way out leads past a line: `continue` does from above it."""
    if way.word == "continue" and way.line > line.line:
        return False
    return bool(way.handler) or not COUNTS.match(way.test)


def in_words(file: str, way: WayOut) -> str:
    """What a way out does, as a `because` has it."""
    does = "a pass skips that call by" if way.word == "continue" else "the loop is left by"
    where = f"({file}:{way.line})"
    if way.handler:
        return f"as the source has it, {does} `{way.word}` in `{way.handler}` {where}"
    return f"as the source has it, {does} `{way.word}` where `{way.test}` holds {where}"


def _caught(line: SourceLine) -> Iterator[str]:
    """The `except` clauses that go on behind a call."""
    for number, text in line.caught:
        yield f"that call stands in a `try` whose `{text}` ({line.file}:{number}) goes on: who raises there skips it"

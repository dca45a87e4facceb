"""Why the loops of ranks may begin or end at different steps, as the source of a counted loop has it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.diagnosis import pasted
from safelaunch.diagnosis.blame.ways_out import Ways
from safelaunch.diagnosis.lines import Lines
from safelaunch.model import Location, SourceLine

SHOWN = 2
NO_SYNC = re.compile(r"\bno_sync\(|set_requires_gradient_sync|\baccumulate\(")
SAME_PASSES = "accumulate over the same number of passes on all ranks: compare what decides it, such as a setting"
ENDLESS = ("True", "1")
# A head that takes data ends with them.
TAKES = re.compile(r":=|\bnext\(|\.(?:read|recv|get|pop)\w*\(|iter\b|loader|batch|data|queue|shard", re.IGNORECASE)
AGREE = "let all ranks begin that loop at one step and end it at one: broadcast by what it counts"


def of_loop(inside: Iterable[Location], behind: Iterable[Location], lines: Lines) -> Ways:
    """By what a `while`, or a `for` over a range, counts in which one rank still is; nothing where it takes data.

    Args:
        inside: the frames of a rank that is in the loop, innermost first.
        behind: those of one that has left it.
        lines: of the source.
    """
    frames = [*inside]
    syncs = _syncs(frames, lines)
    if syncs:
        return Ways(syncs[:SHOWN], SAME_PASSES)
    around = {(line.file, first) for line in _lines(behind, lines) for first, _ in line.loops}
    left = [line for line in _lines(frames, lines) if any((line.file, first) not in around for first, _ in line.loops)]
    heads = [
        (line.file, number, text) for line in left for number, text in _heads(line) if (line.file, number) not in around
    ]
    bounds = [(line.file, each) for line in left for each in line.bounds if (line.file, each.loop) not in around]
    if any(TAKES.search(text) for _, _, text in heads):
        return Ways()
    because = [
        f"where that loop begins and ends depends on `{each.name}`: `{each.text}` stands below `{each.test}` "
        f"({file}:{each.line})"
        for file, each in bounds
    ]
    if because:
        known = (pasted.name(each.name, "") for _, each in bounds)
        names = ", ".join(dict.fromkeys(f"`{name}`" if name else "what it counts by" for name in known))
        return Ways(tuple(because[:SHOWN]), f"see why {names} differs from rank to rank; {AGREE}")
    if heads:
        head = pasted.condition(heads[-1][2], "the head of that loop")
        return Ways((), f"see why {head} comes out otherwise on one rank; {AGREE}")
    return Ways()


def _syncs(frames: Iterable[Location], lines: Lines) -> tuple[str, ...]:
    """What decides which passes reduce gradients, of a call that stands within it."""
    return tuple(
        f"which passes make that call depends on `with {text}` ({line.file}:{number})"
        for line in _lines(frames, lines)
        for number, text in line.holds
        if NO_SYNC.search(text)
    )


def _lines(frames: Iterable[Location], lines: Lines) -> list[SourceLine]:
    return [line for frame in frames if (line := lines.get((frame.file, frame.line))) is not None]


def _heads(line: SourceLine) -> list[tuple[int, str]]:
    """The tests of the `while` loops around a line."""
    loops = {first for first, _ in line.loops}
    return [(each.line, each.text) for each in line.conditions if each.line in loops and each.text not in ENDLESS]

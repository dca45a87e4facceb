"""Tells what two launches of a program have left that differs."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catalogue import Program
from launching import Outcome

SHOWN = 6  # lines of a difference
WIDTH = 160  # characters of a line
BEFORE = 20  # of them, before the first that differs
CHECKED = ("own: ", "same: ")


@dataclass(frozen=True)
class Difference:
    """One difference from torchrun.

    Args:
        program: its name.
        launcher: `warm` or `cold`.
        what: `exit`, `stdout`, `stderr`, `launcher`, `files`, `after`, `left`, `own` or `same`, then `:` and which.
        lines: that show it.
    """

    program: str
    launcher: str
    what: str
    lines: tuple[str, ...]


def compare(program: Program, outcomes: Mapping[str, Outcome]) -> list[Difference]:
    """All differences of the other launchers from torchrun.

    Args:
        program: that was run.
        outcomes: by launcher; the first one is what the others are compared with.
    """
    first, *others = outcomes
    found = [
        Difference(program.name, launcher, what, lines)
        for launcher in others
        for what, lines in _between(program, outcomes[first], outcomes[launcher])
    ]
    drawn: dict[tuple[str, str], str] = {}
    for launcher, outcome in outcomes.items():
        for what, line in _drawn(outcome, launcher, drawn):
            found.append(Difference(program.name, launcher, what, (line,)))
    return found


def _between(program: Program, theirs: Outcome, ours: Outcome) -> Iterator[tuple[str, tuple[str, ...]]]:
    if theirs.code != ours.code:
        codes = ["killed after its timeout" if code is None else str(code) for code in (theirs.code, ours.code)]
        yield "exit", (f"{codes[0]} -> {codes[1]}",)
    for key in sorted({*theirs.streams, *ours.streams}):
        attempt, rank, stream = key
        texts = [_plain(program, stream, outcome.streams.get(key, "")) for outcome in (theirs, ours)]
        if texts[0] != texts[1]:
            where = f"{stream}:{rank}" + (f" of attempt {attempt}" if attempt else "")
            yield where, _diff(*texts)
    outs = [outcome.out if program.redirected else _sorted(outcome.out) for outcome in (theirs, ours)]
    if outs[0] != outs[1]:
        yield "launcher" if program.redirected else "stdout", _diff(*outs)
    for name in sorted({*theirs.files, *ours.files}):
        lines = _file(program, name, theirs, ours)
        if lines:
            yield f"files:{name}", lines
    if theirs.after != ours.after:
        yield "after", _diff(theirs.after, ours.after)
    if theirs.left != ours.left:
        yield "left", _diff("\n".join(theirs.left), "\n".join(ours.left))


def _plain(program: Program, stream: str, text: str) -> str:
    lines = text.splitlines(keepends=True)
    if stream == "stdout":
        # Where a line stands is compared, and what it speaks of; its value is looked at by `_drawn`.
        return "".join(" ".join(line.split()[:2]) + "\n" if line.startswith(CHECKED) else line for line in lines)
    return "".join(line for line in lines if not any(re.search(pattern, line) for pattern in program.ignore))


def _sorted(text: str) -> str:
    return "".join(sorted(text.splitlines(keepends=True)))


def _file(program: Program, name: str, theirs: Outcome, ours: Outcome) -> tuple[str, ...]:
    one, other = theirs.files.get(name), ours.files.get(name)
    if one is None or other is None:
        unlike = any(fnmatch.fnmatch(name, pattern) for pattern in program.unlike)
        return () if unlike else ("missing" if other is None else "not under torchrun",)
    if one[:2] != other[:2]:
        return (f"{one[0]} {one[1]} -> {other[0]} {other[1]}",)
    if one[2] == other[2] or any(fnmatch.fnmatch(name, pattern) for pattern in program.unlike):
        return ()
    sizes = f"{len(one[2])} -> {len(other[2])} bytes"
    try:
        return sizes, *_diff(one[2].decode(), other[2].decode())
    except UnicodeDecodeError:
        return (sizes,)


def _diff(theirs: str, ours: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), lineterm="", n=0)
    changes = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if not changes:
        return ("line endings",)
    # Long lines are shown from a little before the place where they differ.
    columns = zip(*(line[1:] for line in changes), strict=False)
    alike = max(0, sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns)) - BEFORE)
    more = [f"... {len(changes) - SHOWN} lines more"] if len(changes) > SHOWN else []
    return (*(f"{line[0]}{line[1 + alike :][:WIDTH]}" for line in changes[:SHOWN]), *more)


def _drawn(outcome: Outcome, launcher: str, drawn: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """What was to be another on each rank and is not, and what was to be the same.

    Args:
        outcome: of one launch.
        launcher: of it.
        drawn: `(key, value)` -> who had it, of the launches before; filled.
    """
    shared: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for (attempt, rank, stream), text in sorted(outcome.streams.items()):
        if stream != "stdout":
            continue
        who = f"rank {rank} under {launcher}" + (f" in attempt {attempt}" if attempt else "")
        for line in text.splitlines():
            kind, _, rest = line.partition(": ")
            key, _, value = rest.partition(" ")
            if kind == "own":
                before = drawn.setdefault((key, value), who)
                if before != who:
                    yield f"own:{key}", f"{who} has the same as {before}: {value[:WIDTH]}"
            elif kind == "same":
                values = shared[attempt, key]
                values.setdefault(value, who)
                if len(values) == 2 and values[value] == who:
                    yield f"same:{key}", " but ".join(f"{who} has {value[:WIDTH]}" for value, who in values.items())

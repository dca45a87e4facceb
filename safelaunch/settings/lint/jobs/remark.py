"""A finding about a file, with the text that it is about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safelaunch.model import Finding

_BEFORE = r"(?<![A-Za-z0-9_])(?:APPTAINERENV_|SINGULARITYENV_)?"
_VALUE = re.compile(
    r"""["']?[ \t]*(?:[+?:]?=|:)[ \t]*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;&|)}\]]*)"""
    r"""|(?P<blank>[ \t]+("[^"]*"|'[^']*'|\S+))"""
)
_BLANK_BETWEEN = re.compile(r"(?:\bsetenv|\bENV)[ \t]*$")  # csh, modulefiles, old Dockerfiles
_NEAR = 3  # lines below, on which the text may stand: the value of a name


@dataclass(frozen=True)
class Span:
    """A piece of one line: the line from 1, the columns from 0, `end` without."""

    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Edit:
    """What to write in place of a piece of a line; None to take away the whole line."""

    span: Span
    text: str | None


@dataclass(frozen=True)
class Remark:
    """One finding about one file. `more` are further lines of which the same is to be said, `edits` what `--fix`
    does."""

    finding: Finding
    path: str
    span: Span | None = None
    more: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()

    @property
    def line(self) -> int:
        """The line, 1 where the whole file is meant."""
        return self.span.line if self.span else 1


def find(lines: list[str], line: int, name: str, value: str | None = None) -> Span:
    """Where a variable is set: its name and its value, as they stand in the file.

    Args:
        lines: of the file.
        line: the one on which the reader saw it.
        name: of the variable.
        value: its value, where it is known; of several on the line the one with this value is meant.
    """
    pattern = re.compile(_BEFORE + re.escape(name) + r"(?![A-Za-z0-9_])")
    for number in range(line, min(line + _NEAR, len(lines)) + 1):
        text = lines[number - 1]
        found = [Span(number, match.start(), _end(text, match, value)) for match in pattern.finditer(text)]
        if found:
            said = [span for span in found if value and value in text[span.start : span.end]]
            return (said or found)[0]
    return whole(lines, line)


def _end(text: str, match: re.Match[str], value: str | None) -> int:
    after = _VALUE.match(text, match.end())
    if after is None or (after["blank"] and not _BLANK_BETWEEN.search(text[: match.start()])):
        return match.end()
    for index in (1, 3):
        start = after.start(index)
        if start >= 0 and value and text.startswith(value, start) and not value.isspace():
            return start + len(value)
    return after.end()


def text(lines: list[str], line: int, wanted: str) -> Span:
    """Where a piece of text stands on a line, or near below; the whole line where it does not."""
    for number in range(line, min(line + _NEAR, len(lines)) + 1):
        at = lines[number - 1].find(wanted) if wanted else -1
        if at >= 0:
            return Span(number, at, at + len(wanted))
    return whole(lines, line)


def whole(lines: list[str], line: int) -> Span:
    """All of a line but the blanks around it."""
    line = min(max(line, 1), max(len(lines), 1))
    content = lines[line - 1] if lines else ""
    start = len(content) - len(content.lstrip())
    return Span(line, start, max(len(content.rstrip()), start))

"""What is known of the program's source lines, by where they stand."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.model import SourceLine

Lines = dict[tuple[str, int], SourceLine]


def by_place(source: Iterable[SourceLine]) -> Lines:
    """The same lines by file and number."""
    return {(line.file, line.line): line for line in source}

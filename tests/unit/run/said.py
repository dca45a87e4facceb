"""A console that keeps what is said."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.printable import Line
from safelaunch.report.palette import PLAIN
from safelaunch.run.console import Console


class Said(Console):
    """`lines` is all that was printed."""

    def __init__(self, loud: int = 0) -> None:
        self.loud = loud
        self.palette = PLAIN
        self.lines: list[str] = []

    def print(self, lines: Iterable[Line]) -> None:
        self.lines += lines

    def aside(self, line: str) -> None:
        self.say(line)

"""Runs in: agent. The console on which lines go by above a bar that a rank draws (`--log merge`)."""

from __future__ import annotations

import os
import threading
from typing import TextIO

from safelaunch.agent.console import Console

ERASE = "\r\x1b[K"  # to the beginning of the line, and nothing stands on it (ECMA-48, EL)
WIDTH = 80  # where a terminal does not say it

_drawing = threading.Lock()  # stdout and stderr are one terminal, and a thread each
_bars: dict[int, tuple[object, str]] = {}  # who has drawn what below the lines of a terminal, by its device number


class Screen(Console):
    """A console for whole lines. On a terminal a bar stays below them, whichever stream they come through."""

    def __init__(self, dst: TextIO) -> None:
        super().__init__(dst)
        self._terminal = os.fstat(self._descriptor).st_rdev if self._descriptor >= 0 and dst.isatty() else None

    @property
    def is_terminal(self) -> bool:
        """Whether bars can be seen on it."""
        return self._terminal is not None

    def write(self, text: str) -> None:
        """Write lines, above the bar. Raises OSError where the other end is gone."""
        if self._terminal is None:
            super().write(text)
            return
        with _drawing:
            _, bar = _bars.get(self._terminal, (None, ""))
            super().write(f"{ERASE}{text}{bar}" if bar else text)

    def draw(self, bar: str) -> None:
        """Draw a bar, or none where it is empty. Raises OSError where the other end is gone."""
        if self._terminal is None:
            return
        bar = bar[: self._width() - 1]  # a line that wraps cannot be erased
        with _drawing:
            owner, before = _bars.get(self._terminal, (None, ""))
            if bar != before and (bar or owner is self):
                _bars[self._terminal] = (self, bar)
                super().write(f"{ERASE}{bar}")

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._descriptor).columns or WIDTH
        except OSError:
            return WIDTH

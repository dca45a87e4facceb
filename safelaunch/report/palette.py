"""Colour, decided once per stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TextIO

from safelaunch.printable import Line, coloured, line

ColorMode = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Palette:
    """Escape sequences for each meaning, all empty where there is no colour."""

    error: str = ""
    warning: str = ""
    good: str = ""
    strong: str = ""
    dim: str = ""
    reset: str = ""

    def paint(self, style: str, text: str) -> Line:
        """`text` as it may be shown, in the sequence of that name."""
        sequence: str = getattr(self, style)
        return coloured(sequence, text, self.reset) if sequence else line(text)


PLAIN = Palette()
ANSI = Palette("\x1b[1;31m", "\x1b[1;33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m")


def for_stream(stream: TextIO, mode: ColorMode = "auto", environ: Mapping[str, str] | None = None) -> Palette:
    """The palette for `stream`.

    An explicit `mode` wins; then NO_COLOR (https://no-color.org), FORCE_COLOR, TERM=dumb, and whether the
    stream is a terminal.
    """
    environ = os.environ if environ is None else environ
    if mode != "auto":
        return ANSI if mode == "always" else PLAIN
    if environ.get("NO_COLOR"):
        return PLAIN
    if environ.get("FORCE_COLOR"):
        return ANSI
    if environ.get("TERM") == "dumb":
        return PLAIN
    try:
        return ANSI if stream.isatty() else PLAIN
    except (AttributeError, ValueError):
        return PLAIN

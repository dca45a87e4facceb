"""Findings about files on a terminal: each with the line it is about, and a caret under what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.model import Finding
from safelaunch.printable import PLACE_WIDTH, Line, line, visible
from safelaunch.report import text
from safelaunch.report.palette import PLAIN, Palette

WIDTH = 160  # characters of a line of a file that are shown
MARGIN = 20  # of these that stand before what is wrong, where the line is cut


def lines(
    finding: Finding,
    path: str,
    place: tuple[int, int, int] | None,
    source: str,
    more: Sequence[int],
    palette: Palette = PLAIN,
) -> list[Line]:
    """The lines of one finding about a file.

    Args:
        finding: what is said.
        path: of the file.
        place: the line from 1, and the columns from 0 and without the last; None where the whole file is meant.
        source: that line of the file.
        more: further lines of which the same is to be said.
        palette: colours.
    """
    if place is None:
        return text.diagnostic(finding, palette=palette, location=path)
    number, start, end = place
    also = f", and line{'s' if len(more) > 1 else ''} {', '.join(map(str, more))}" if more else ""
    shown = text.diagnostic(finding, palette=palette, location=f"{path}:{number}:{start + 1}{also}")
    return [*shown[:2], *excerpt(number, start, end, source, finding.severity, palette), *shown[2:]]


def excerpt(number: int, start: int, end: int, source: str, severity: str, palette: Palette) -> list[Line]:
    """The line of the file, and below it a caret under each character that is meant."""
    first = max(0, start - MARGIN) if len(source) > WIDTH else 0
    piece = source[first : first + WIDTH]
    before, wrong = visible(piece[: start - first]), visible(piece[start - first : end - first])
    gutter = " " * len(str(number))
    carets = palette.paint(text.STYLES[severity], "^" * max(len(wrong), 1))
    bar = palette.paint("dim", "|")
    return [
        line(f" {gutter} ", bar),
        line(f" {number} ", bar, f" {visible(piece)}", width=PLACE_WIDTH),
        line(f" {gutter} ", bar, f" {' ' * len(before)}", carets, width=PLACE_WIDTH),
    ]

"""What may be shown: the one door between texts of others and a terminal, or a file that people read.

A file name, a message of a program, a host in a bundle: each may hold what moves the cursor, sets the clipboard
(OSC 52), writes from right to left, or begins a line that looks like one of ours. What writes takes `Line` only, and
mypy sees to it that there is one. Standard library only.
"""

from __future__ import annotations

import re
import shlex

WIDTH = 300  # characters of one text within a line: a message may be endless
PLACE_WIDTH = 4096 + 3 * WIDTH  # a path is of use only where it is whole (PATH_MAX of Linux)
TAB = "    "
NAME = re.compile(r"\w[\w.@:-]{0,254}")  # of a run, a host, a variable
# SGR, the sequences that change colours and nothing else (ECMA-48, 8.3.117).
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Printable for Python, and yet not seen (Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties).
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


class Line(str):
    """One line that may be shown. Only this module makes one; what is put together from lines is a `str` again."""

    __slots__ = ()


def line(*parts: str, width: int = WIDTH) -> Line:
    """One line of these parts: those that are lines as they are, all others without control characters, and cut to
    `width` characters."""
    return Line("".join(part if isinstance(part, Line) else _shortened(visible(part), width) for part in parts))


def whole(*parts: str) -> Line:
    """As `line`, for what must not be cut: values of variables, what a run says."""
    return Line("".join(part if isinstance(part, Line) else visible(part) for part in parts))


def lines(text: str) -> list[Line]:
    """The lines of a text of several, each whole."""
    return [whole(part) for part in text.split("\n")]


def coloured(sequence: str, text: str, reset: str) -> Line:
    """A text between two sequences.

    Raises:
        ValueError: where one is no colour.
    """
    if not (_COLOUR.fullmatch(sequence) and _COLOUR.fullmatch(reset)):
        raise ValueError(f"{sequence!r} and {reset!r} are no colours")
    return Line(f"{sequence}{line(text)}{reset}")


def ljust(text: Line, width: int) -> Line:
    """The line filled with spaces to `width` characters."""
    return Line(text.ljust(width))


def quoted(value: str) -> Line:
    """A word for a shell, in one line: what cannot be shown stands as `$'...'` (POSIX.1-2024, 2.2.4)."""
    if value.isprintable():
        return Line(shlex.quote(value))
    inner = "".join(_in_shell(c) for c in value)
    return Line(f"$'{inner}'")


def named(value: str) -> Line:
    """A name that others gave, where a line of ours could stand: in quotes, unless it holds only what names are made
    of. Nobody takes `'error[SL303]: ...'` for a line of safelaunch."""
    return Line(value) if NAME.fullmatch(value) else quoted(_shortened(visible(value), WIDTH))


def _in_shell(c: str) -> str:
    if c in "\\'":
        return f"\\{c}"
    if c.isprintable():
        return c
    # os.environ holds bytes that are no UTF-8 as lone surrogates (PEP 383).
    errors = "surrogateescape" if "\udc80" <= c <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in c.encode("utf-8", errors))


def visible(text: str, kept: str = "") -> str:
    """All that is no letter, sign or space as an escape: C0 and C1 controls, DEL, marks of direction, what has no
    width, line separators, lone surrogates (`str.isprintable`). Characters in `kept` stay, other tabs are spaces."""
    if text.isprintable():
        return str(text) if text.isascii() else _UNSEEN.sub(lambda found: _escape(found[0]), text)
    shown = "".join(c if c.isprintable() or c in kept else TAB if c == "\t" else _escape(c) for c in text)
    return _UNSEEN.sub(lambda found: _escape(found[0]), shown)


def _escape(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."

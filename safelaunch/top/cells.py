"""How many columns of a terminal a text takes, and texts of so many columns."""

from __future__ import annotations

import unicodedata

from safelaunch.printable import Line, visible, whole


def width(text: str) -> int:
    """The columns that a text takes: two for each character that East Asian fonts make wide."""
    if text.isascii():
        return len(text)
    return sum(_width(c) for c in text)


def _width(c: str) -> int:
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def fitted(text: str, columns: int, *, right: bool = False) -> Line:
    """A text of others in exactly so many columns: cut off, with a mark, or filled with spaces. Signs that stand on a
    letter, of which there may be any number, are left out where they are no part of one."""
    shown = text if isinstance(text, Line) else visible(text)
    if not shown.isascii():
        shown = "".join(c for c in unicodedata.normalize("NFC", shown) if unicodedata.category(c) not in ("Mn", "Me"))
    if width(shown) > columns:
        shown = _cut(shown, columns)
    filling = " " * (columns - width(shown))
    return whole(f"{filling}{shown}" if right else f"{shown}{filling}")


def _cut(text: str, columns: int) -> str:
    kept, left = [], columns - 1
    for c in text:
        left -= _width(c)
        if left < 0:
            break
        kept.append(c)
    return "".join(kept) + "~" if columns > 0 else ""

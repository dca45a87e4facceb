"""Elements of a page. Whatever is not made here is text: escaped, without secrets, and not endless."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable

from safelaunch import redaction
from safelaunch.printable import visible

HEAD, TAIL = 12_000, 6_000  # characters of one text: where it begins and how it ends tell most
MARGIN = 40_000  # characters on either side that are searched for secrets, so that no half of one is left at a cut
KEPT = "\n\t"
CELL = 240  # characters of a text in a table
LOOKS: dict[str, dict[str, str]] = {
    "plain": {"fill": "#f4f6f8", "stroke": "#5b6570"},
    "guilty": {"fill": "#fdecea", "stroke": "#b3261e", "stroke_width": "2.5"},
    "arrow": {"fill": "none", "stroke": "#5b6570", "stroke_width": "1.6"},
    "head": {"fill": "#5b6570"},
    "life": {"fill": "#d5dae0"},
    "quiet": {"fill": "#c9ced6"},
    "call": {"fill": "#3b7dd8"},
    "inside": {"fill": "#e08a00"},
    "phase": {"fill": "#7a52c7"},
    "end": {"fill": "none", "stroke": "#b3261e", "stroke_width": "2.5"},
    "grid": {"stroke": "#d5dae0"},
    "incident": {"stroke": "#b3261e", "stroke_dasharray": "5 4"},
    "name": {"text_anchor": "end"},
    "strong name": {"text_anchor": "end", "font_weight": "700"},
    "strong": {"font_weight": "700"},
    "tick": {"text_anchor": "middle", "font_size": "11"},
    "dim": {"fill": "#5b6570"},
}
VOID = ("meta", "br", "hr")


class Html(str):
    """Markup. Only `tag`, `joined` and `style` make it."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """One element. Children that are no markup become text; None is left out.

    Attributes are named as in Python: `class_` for class, `stroke_width` for stroke-width. None leaves one out.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def shape(name: str, class_: str, *children: object, **attributes: object) -> Html:
    """An element of a drawing. It has its colours also where a viewer ignores style sheets inside of drawings (the
    page's own sheet, which knows light from dark, goes before them)."""
    return tag(name, *children, class_=class_, **{**LOOKS.get(class_, {}), **attributes})


def joined(children: Iterable[object], between: str = "") -> Html:
    """Children one after the other."""
    return Html(
        between.join(child if isinstance(child, Html) else text(child) for child in children if child is not None)
    )


def style(sheet: str) -> Html:
    """A style sheet of ours; what stands in it is never from outside."""
    return Html(f"<style>{sheet}</style>")


def text(value: object) -> Html:
    """Escaped text: secrets redacted, control characters and lone surrogates visible, its middle left out if long."""
    return Html(html.escape(plain(str(value)), quote=True))


def cell(value: object, limit: int = CELL) -> str:
    """A text for a table: one line, shortened."""
    line = plain(str(value)).replace("\n", " ").replace("\t", " ")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def plain(value: str) -> str:
    """Text as it may be shown, not escaped."""
    if len(value) <= CELL:
        return _short(value)
    if len(value) > 2 * MARGIN:
        first, last = redaction.text(value[:MARGIN]), redaction.text(value[-MARGIN:])
        return visible(_cut(first + last, len(value) - 2 * MARGIN), KEPT)
    return visible(_cut(redaction.text(value)), KEPT)


@functools.lru_cache(maxsize=4096)
def _short(value: str) -> str:
    return visible(redaction.text(value), KEPT)


def _cut(value: str, already: int = 0) -> str:
    if len(value) <= HEAD + TAIL:
        return value
    left_out = len(value) - HEAD - TAIL + already
    return f"{value[:HEAD]}\n... {left_out:,} characters left out ...\n{value[-TAIL:]}"

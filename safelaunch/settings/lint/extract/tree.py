"""The nodes of a YAML or JSON text, each with its line; and the collections in brackets that both share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Union

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(\r?\n)[ \t]*|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_FOLD = re.compile(r"[ \t]*\n\s*")
_DEEPEST = 100

_PIECE = re.compile(
    r"""
      (?P<blank> \s+ | (?:\#|//)[^\n]* | /\*[^*]*\*+(?:[^/*][^*]*\*+)*/ )
    | (?P<template> \$?\{\{[^{}\n]*\}\} )
    | (?P<bracket> [\[\]{}] )
    | (?P<comma> , )
    | (?P<colon> :(?=[\s,\[\]{}"']|\Z) )
    | (?P<double> "(?:[^"\\]|\\.)*" )
    | (?P<single> '(?:[^']|'')*' )
    | (?P<plain> (?:[^\s,\[\]{}:#]|:(?![\s,\[\]{}])|(?<!\s)\#|[ \t]+(?![\s,\[\]{}:#]))+ )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass
class Scalar:
    """A text. `text` is None where it cannot be told; `null` where nothing is said.

    `source` is the same text for a shell, in which each line break of the file stands where it was.
    """

    text: str | None
    line: int
    source: str = ""
    null: bool = False
    block: bool = False


@dataclass
class Sequence:
    """A list."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass
class Mapping:
    """Keys with their lines and values, in order. What could not be placed has the key ""."""

    line: int
    entries: list[tuple[str, int, Node]] = field(default_factory=list)

    def get(self, *names: str) -> Node | None:
        """The value of the first of these keys that there is; the case of the letters does not matter."""
        for key, _, value in self.entries:
            if key.lower() in names:
                return value
        return None


Node = Union[Scalar, Sequence, Mapping]  # noqa: UP007 (the names are not defined yet where `|` would be tried)


def double_quoted(raw: str, line: int) -> Scalar:
    """The scalar of a text between double quotes; `raw` includes them."""
    inner = raw[1:-1]
    text = _ESCAPE.sub(_unescape, _FOLD.sub(_folded, inner) if "\n" in inner else inner)
    # A shell sees the escape \n as the end of a command, the file does not see it as the end of a line.
    source = _FOLD.sub(" \\\\\n", inner) if "\n" in inner else inner
    return Scalar(text, line, _ESCAPE.sub(_for_shell, source))


def single_quoted(raw: str, line: int) -> Scalar:
    """The scalar of a text between single quotes; `raw` includes them."""
    inner = raw[1:-1].replace("''", "'")
    return Scalar(_FOLD.sub(_folded, inner), line, _FOLD.sub(" \\\\\n", inner))


def plain(text: str, line: int, source: str = "") -> Scalar:
    """The scalar of a text without quotes."""
    null = text in ("", "~", "null", "Null", "NULL")
    return Scalar(None if null or "{{" in text else text, line, source or text, null)


def bracketed(text: str, pos: int, line: int) -> tuple[Node, int] | None:
    """The collection in brackets that starts at `pos`, and the position after it; None where it never ends.

    It reads JSON with comments and trailing commas too.

    Args:
        text: the whole text.
        pos: where the bracket stands.
        line: the line of that position.
    """
    stack: list[tuple[Sequence | Mapping, str]] = []
    keys: list[tuple[str, int] | None] = []  # for each mapping the key that waits for its value
    last: Scalar | None = None
    size = len(text)
    while pos < size:
        match = _PIECE.match(text, pos)
        if match is None:
            pos += 1
            continue
        kind, raw, pos = match.lastgroup, match[0], match.end()
        if kind == "bracket" and raw in "[{":
            node: Sequence | Mapping = Sequence(line) if raw == "[" else Mapping(line)
            if stack:
                _put(stack[-1][0], keys, node)
            if len(stack) >= _DEEPEST:
                return None
            stack.append((node, "]" if raw == "[" else "}"))
            keys.append(None)
            last = None
        elif kind == "bracket":
            if not stack or stack[-1][1] != raw:
                return None
            _end_pair(stack[-1][0], keys, last, line)
            done = stack.pop()[0]
            keys.pop()
            last = None
            if not stack:
                return done, pos
        elif not stack:
            return None
        elif kind == "comma":
            _end_pair(stack[-1][0], keys, last, line)
            last = None
        elif kind == "colon":
            top = stack[-1][0]
            if isinstance(top, Sequence) and last is not None:
                pair = Mapping(last.line)
                pair.entries.append((last.text or "", last.line, Scalar(None, last.line, null=True)))
                top.items[-1:] = [pair]
            elif last is not None:
                keys[-1] = (last.text or "", last.line)
            last = None
        elif kind != "blank":
            scalar = _scalar(kind or "", raw, line)
            if isinstance(stack[-1][0], Mapping) and keys[-1] is None:
                last = scalar
            else:
                _put(stack[-1][0], keys, scalar)
                last = scalar if isinstance(stack[-1][0], Sequence) else None
        if "\n" in raw:
            line += raw.count("\n")
    return None


def _scalar(kind: str, raw: str, line: int) -> Scalar:
    if kind == "double":
        return double_quoted(raw, line)
    if kind == "single":
        return single_quoted(raw, line)
    return Scalar(None, line) if kind == "template" else plain(raw.strip(), line)


def _put(top: Sequence | Mapping, keys: list[tuple[str, int] | None], node: Node) -> None:
    if isinstance(top, Mapping):
        key, line = keys[-1] or ("", node.line)
        top.entries.append((key, line, node))
        keys[-1] = None
        return
    before = top.items[-1] if top.items else None
    if isinstance(before, Mapping) and before.entries and before.entries[-1][2] == Scalar(None, before.line, null=True):
        before.entries[-1] = (*before.entries[-1][:2], node)  # the value of [a: b]
    else:
        top.items.append(node)


def _end_pair(top: Sequence | Mapping, keys: list[tuple[str, int] | None], last: Scalar | None, line: int) -> None:
    if not isinstance(top, Mapping):
        return
    if keys[-1] is not None:
        top.entries.append((*keys[-1], Scalar(None, line, null=True)))
        keys[-1] = None
    elif last is not None:
        top.entries.append((last.text or "", last.line, Scalar(None, line, null=True)))


def _folded(match: re.Match[str]) -> str:
    return "\n" * (match[0].count("\n") - 1) or " "


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        code = int(digits, 16)
        return chr(code) if code < 0x110000 else ""
    return "" if match[4] else _ESCAPES.get(match[5], match[5])


def _for_shell(match: re.Match[str]) -> str:
    if match[4]:
        return "\\\n"
    return ";" if match[5] == "n" else _unescape(match)

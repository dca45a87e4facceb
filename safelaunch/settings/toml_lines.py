"""The line of each key in a TOML document, which tomllib does not tell."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[str, ...]

# The pieces that matter for finding where a statement ends: strings and comments hide brackets and newlines.
_PIECE = re.compile(
    r'''
      (?P<string> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<newline> \n )
    | (?P<other> [^"'\#\[\]{}\n]+ )
    ''',
    re.VERBOSE | re.DOTALL,
)
_KEY = re.compile(r"""((?:"(?:\\.|[^"\\])*"|'[^']*'|[^="'])+)=""", re.DOTALL)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map each key of a valid TOML document, and each table, to its line, counted from 1.

    Keys within an inline table or an array are not listed; see `line_of`. A key path is the whole path from the
    top: `("preflight", "severity", "SL104")`.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, statement in _statements(text):
        if statement.startswith("["):
            path = table = _path(statement.strip("[] \t"))
        else:
            match = _KEY.match(statement)
            if match is None:
                continue
            path = table + _path(match[1])
        for depth in range(1, len(path) + 1):
            lines.setdefault(path[:depth], line)
    return lines


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of a key, or of the innermost table around it that has a line of its own."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement without its comments, with the line on which it starts."""
    line = start = 1
    depth = 0
    parts: list[str] = []
    for piece in _PIECE.finditer(text + "\n"):
        kind = piece.lastgroup
        if kind == "newline" and depth == 0:
            if statement := "".join(parts).strip():
                yield start, statement
            parts, start = [], line + 1
        elif kind != "comment":
            depth += (kind == "open") - (kind == "close")
            parts.append(piece[0])
        line += piece[0].count("\n")


def _path(key: str) -> KeyPath:
    """Split a dotted key, quotes and escapes resolved as TOML resolves them."""
    rest: Any = tomllib.loads(f"{key} = 0")
    path: list[str] = []
    while isinstance(rest, dict):
        ((part, rest),) = rest.items()
        path.append(part)
    return tuple(path)

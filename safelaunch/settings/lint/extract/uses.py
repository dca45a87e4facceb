"""The variables that a file itself makes use of: a name that a script expands is read, whoever else knows it."""

from __future__ import annotations

import re
from collections.abc import Iterator

# $X, ${X...}, ${!X}, ${#X}; and $(X), which is make's and Kubernetes' way to write it.
_USE = re.compile(r"\$(?:\{[!#]?|\()?([A-Za-z_][A-Za-z0-9_]*)")
_SEPARATOR = re.compile(r"&&|\|\||[;|{(]|\b(?:then|do|else)\b")
_PRINTS = re.compile(r"\s*(?:echo|printf|mkdir|rmdir|rm|touch|chmod|chown|ls)\b")
_GOES_ON = re.compile(r"[>|]")
_NAME = re.compile(r"""\bname:[ \t]*["']?([A-Za-z_][A-Za-z0-9_]*)""")
_MOST, _LONGEST = 64, 2048  # uses and characters of one line that are looked at closely
_VALUE = re.compile(r"[ \t]*(?:-[ \t]+)?value:")


def used(text: str) -> frozenset[str]:
    """Every name that is expanded to do something with it.

    Passing it on under its own name (`export X=$X`, `-e X=$X`, `X: ${X}`), giving it a default (`: ${X:=1}`) and only
    printing it or making a folder of it do not count: a misspelt name gets no meaning from them.

    Args:
        text: of a shell script, or of a file with commands in it.
    """
    return frozenset(_uses(text))


def _uses(text: str) -> Iterator[str]:
    if "$" not in text:
        return
    before = ""
    for line in text.split("\n"):
        if "$" in line and not line.lstrip().startswith("#"):
            named = _NAME.search(before) if _VALUE.match(line) else None
            for number, match in enumerate(_USE.finditer(line)):
                if named and named[1] == match[1]:
                    continue
                if number >= _MOST or match.start() > _LONGEST or _acts(line, match):
                    yield match[1]
        before = line if line.strip() else before


def _acts(line: str, match: re.Match[str]) -> bool:
    name, rest = match[1], line[match.end() :]
    if line[match.start() : match.start() + 2] == "${" and rest.startswith((":=", "=")):
        return False
    command = _command(line[: match.start()])
    if re.search(rf"""(?:(?<![A-Za-z0-9_${{])|(?<=-e)){name}["']?(?:[ \t]*[+:?]?=|:(?=[ \t]))""", command):
        return False
    return not _PRINTS.match(command) or bool(_GOES_ON.search(rest))


def _command(before: str) -> str:
    """The part of a line that belongs to the command at its end, as far as that can be told without quotes."""
    start = 0
    for separator in _SEPARATOR.finditer(before):
        # ${X...} and $(...) are parts of a word, and so is what stands in quotes.
        inside = (
            before[start : separator.start()].count('"') % 2 or before[separator.start() - 1 : separator.start()] == "$"
        )
        start = start if inside else separator.end()
    return before[start:]

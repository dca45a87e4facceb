"""What a word of the shell says once its quotes are gone and its variables are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.settings.lint.extract.scan import PLACEHOLDER, Scanner

# Stands for a piece that only a run can tell. No variable can hold it: the kernel ends one there.
UNKNOWN = "\0"

# What a variable holds (with UNKNOWN in it where that is not known), or None if the file never sets it. The second
# argument asks to be sure: a value that only one branch sets is then not known.
Lookup = Callable[[str, bool], "str | None"]
Assign = Callable[[str, str], None]

_DEPTH = 12  # of a default within a default
_GROWTH = 32768  # characters that variables may add to a word; X=$X$X, line after line, would double for ever
_SPECIAL = re.compile(r"""[\\'"`$<]""")
_PLACEHOLDER = re.compile(PLACEHOLDER)
_PLAIN = re.compile(r"""[^\\'"`$]+""")
_PLAIN_QUOTED = re.compile(r"[^\\`$]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?:(:?[-=+?])(.*))?", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\`$])')
_FILLED = re.compile(r"""'((?:[^'"\\$]|\\.)*\$[^'"\\]*)'""")
_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TEMPLATE = re.compile(r"\{\{|\{%|<%|%>|(?<!\$)\{[A-Za-z_][A-Za-z0-9_]*\}")  # Jinja, ERB, str.format


def outside(_name: str, _certain: bool) -> str | None:
    """The lookup of a file that sets nothing itself."""
    return None


def expand(raw: str, lookup: Lookup = outside, assign: Assign | None = None) -> str:
    """The text of a word, with UNKNOWN for each piece that cannot be told.

    `${X:-default}` is the default where the file does not set X: that is the value when nothing else is set.

    Args:
        raw: the word as it stands in the script.
        lookup: the variables that the script has set so far.
        assign: told of each `${X:=default}` that takes effect.
    """
    if _TEMPLATE.search(raw):
        return UNKNOWN
    if not _SPECIAL.search(raw):
        return raw
    return _expand(raw, lookup, assign, False, 0)


def known(text: str) -> str | None:
    """The text, or None where a piece of it is not known."""
    return None if UNKNOWN in text else text


def _expand(raw: str, lookup: Lookup, assign: Assign | None, quoted: bool, depth: int) -> str:
    if depth > _DEPTH:
        return UNKNOWN
    parts: list[str] = []
    room = len(raw) + _GROWTH
    scanner = Scanner(raw)
    plain = _PLAIN_QUOTED if quoted else _PLAIN
    pos, size = 0, len(raw)
    while pos < size:
        match = plain.match(raw, pos)
        if match:
            bare = not quoted and "<" in match[0]
            parts.append(_PLACEHOLDER.sub(UNKNOWN, match[0]) if bare else match[0])
            pos = match.end()
            continue
        char, following = raw[pos], raw[pos + 1 : pos + 2]
        if char == "\\":
            keeps = quoted and following not in ("$", "`", '"', "\\", "\n")
            parts.append("" if following == "\n" else f"\\{following}" if keeps or not following else following)
            pos += 2
        elif char == "'":
            inner, pos = _inner(scanner, pos + 1, "'")
            parts.append(inner)
        elif char == '"' or (not quoted and raw.startswith('$"', pos)):
            inner, pos = _inner(scanner, pos + (1 if char == '"' else 2), '"')
            parts.append(_expand(inner, lookup, assign, True, depth + 1))
        elif char == "`":
            _, pos = _inner(scanner, pos + 1, "`")
            parts.append(UNKNOWN)
        elif following == "'" and not quoted:
            inner, pos = _inner(scanner, pos + 2, "$'")
            parts.append(_ESCAPE.sub(_unescape, inner))
        elif following == "(":
            _, pos = _inner(scanner, pos + 2, ")")
            parts.append(UNKNOWN)
        elif following == "{":
            inner, pos = _inner(scanner, pos + 2, '"}' if quoted else "}")
            parts.append(_parameter(inner, lookup, assign, quoted, depth + 1))
        elif name := _NAME.match(raw, pos + 1):
            value = lookup(name[0], False)
            parts.append(UNKNOWN if value is None else value)
            pos = name.end()
            room -= len(parts[-1])
            if room < 0:
                return UNKNOWN
        elif following and following in "0123456789@*#?$!-":
            parts.append(UNKNOWN)
            pos += 2
        else:
            parts.append("$")
            pos += 1
    return "".join(parts)


def _inner(scanner: Scanner, start: int, closer: str) -> tuple[str, int]:
    failures = scanner.failures
    end = scanner.end(start, closer)
    return scanner.text[start : end - (scanner.failures == failures)], end


def _parameter(inner: str, lookup: Lookup, assign: Assign | None, quoted: bool, depth: int) -> str:
    match = _PARAMETER.fullmatch(inner)
    if match is None:
        return UNKNOWN  # ${X%.*}, ${X[0]}, ${!X}, ${#X}
    name, operator, word = match.groups()
    value = lookup(name, bool(operator) and operator[-1] != "?")
    if operator is None or operator in (":?", "?"):
        return UNKNOWN if value is None else value
    if value is not None and (value == UNKNOWN or (value == "" and ":" not in operator)):
        return value
    if operator[-1] == "+":
        return UNKNOWN if value is None else _expand(word, lookup, assign, quoted, depth) if value else ""
    if value:
        return value
    default = _expand(word, lookup, assign, quoted, depth)
    if operator[-1] == "=" and assign is not None:
        assign(name, default)
    return default


def _unescape(match: re.Match[str]) -> str:
    for digits, base in zip(match.groups()[:3], (16, 16, 8), strict=True):
        if digits:
            return chr(int(digits, base))
    return _ESCAPES.get(match[4], match[4])


def opened(text: str) -> str:
    """A script that another shell has filled in: single quotes in it did not keep that shell from `'$X'`."""
    return _FILLED.sub(r'"\1"', text)


def script(raw: str) -> str:
    """A word that holds shell text (`bash -c WORD`), without its outer quotes and with all its line breaks."""
    if not _SPECIAL.search(raw):
        return raw
    parts: list[str] = []
    scanner = Scanner(raw)
    pos, size = 0, len(raw)
    while pos < size:
        match = _PLAIN.match(raw, pos)
        if match:
            parts.append(match[0])
            pos = match.end()
        elif raw[pos] == "'":
            inner, pos = _inner(scanner, pos + 1, "'")
            parts.append(inner)
        elif raw[pos] == '"':
            inner, pos = _inner(scanner, pos + 1, '"')
            parts.append(_ESCAPED.sub(r"\1", opened(inner)))
        elif raw.startswith("$'", pos):
            inner, pos = _inner(scanner, pos + 2, "$'")
            parts.append(_ESCAPE.sub(_unescape, inner))
        elif raw[pos] == "\\" and raw[pos + 1 : pos + 2] != "\n":
            parts.append(raw[pos + 1 : pos + 2])
            pos += 2
        else:
            parts.append(raw[pos])
            pos += 1
    return "".join(parts)


def interpolate(text: str, lookup: Lookup = outside) -> str:
    """A text in which only variables are replaced, as a job spec has it; see `expand`."""
    if _TEMPLATE.search(text):
        return UNKNOWN
    return _expand(text, lookup, None, True, 0) if "$" in text else text


def quote(text: str) -> str:
    """A word of the shell that says this text, with its line breaks where they are."""
    return "'" + text.replace("'", "'\\''") + "'"

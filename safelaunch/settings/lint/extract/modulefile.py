"""What environment modules set, in Tcl and in Lua."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.words import UNKNOWN

_LINE = re.compile(r"[ \t]*(setenv|pushenv|set)[ \t]+(?:--?[a-z]+[ \t]+)*([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*?)[ \t]*")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|::env\(\w+\))")
_CALL = re.compile(r"""[ \t]*(?:setenv|pushenv)[ \t]*[({][ \t]*(["'])(\w+)\1[ \t]*,[ \t]*(.*)""")
_LITERAL = re.compile(r"""(?:"([^"]*)"|'([^']*)'|(-?[\d.]+))[ \t]*[)}]""")


def read(text: str, line: int, scope: Scope) -> None:
    """Note what a modulefile in Tcl sets; see `readers.read_as`."""
    for number, content in enumerate(text.split("\n"), line):
        match = _LINE.fullmatch(content)
        if match is None:
            continue
        command, name, raw = match.groups()
        value = _word(raw, scope)
        if command == "set":
            scope.assign(name, value, number)
        else:
            scope.found.add(name, value, number)


def _word(raw: str, scope: Scope) -> str:
    if raw.startswith("{"):
        return raw[1:].partition("}")[0]
    text = raw[1:].partition('"')[0] if raw.startswith('"') else re.split(r"[ \t;]", raw, maxsplit=1)[0]
    if "[" in text or "::env" in text:
        return UNKNOWN
    return _VARIABLE.sub(lambda match: scope.lookup(match[1] or match[2], False) or UNKNOWN, text)


def read_lua(text: str, line: int, scope: Scope) -> None:
    """Note what a modulefile in Lua sets; see `readers.read_as`."""
    for number, content in enumerate(text.split("\n"), line):
        match = _CALL.match(content)
        if match is not None:
            literal = _LITERAL.match(match[3])
            value = next((group for group in literal.groups() if group is not None), "") if literal else UNKNOWN
            scope.found.add(match[2], value, number)

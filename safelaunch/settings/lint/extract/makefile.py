"""What a makefile sets for the commands of its recipes."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.shell import read as read_shell
from safelaunch.settings.lint.extract.words import UNKNOWN

_ASSIGNMENT = re.compile(
    r"(?:[^\n=:#]*:[ \t]*(?=export\b))?[ ]*((?:(?:export|override|private)[ \t]+)*)"
    r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*(\+|\?|:::?|::|:|!)?=[ \t]*(.*)",
    re.DOTALL,
)
_EXPORT = re.compile(r"[ ]*(un)?export(?:[ \t]+(.*))?", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\$|\((\w+)\)|\{(\w+)\}|[({][^)}\n]{0,400}[)}]|.)", re.DOTALL)
_COMMENT = re.compile(r"(?:(?<![ \t])[ \t]+)?(?<!\\)#[^\n]*")  # tried once for each run of blanks
_PREFIX = re.compile(r"[ \t@+-]*")


def read(text: str, line: int, scope: Scope) -> None:
    """Note what `export` and the recipes of a makefile set; see `readers.read_as`."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        start = at
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
        at += 1
        content = "\n".join(lines[start:at])
        if content.startswith("\t"):
            recipe = _REFERENCE.sub(lambda match: _for_shell(match, scope), _PREFIX.sub("", content, count=1))
            read_shell(recipe, line + start, Scope(scope.found, scope))
        else:
            _statement(_COMMENT.sub("", content), line + start, scope)


def _statement(content: str, line: int, scope: Scope) -> None:
    match = _ASSIGNMENT.fullmatch(content)
    if match is not None:
        words, name, operator, raw = match.groups()
        text = re.sub(r"(?<![ \t])[ \t]*\\\n[ \t]*", " ", raw).strip()
        value = UNKNOWN if operator == "!" else _REFERENCE.sub(lambda found: _value(found, scope), text)
        if operator == "+":
            old = scope.lookup(name, True)
            value = UNKNOWN if old is None else f"{old} {value}"
        if operator == "?" and scope.candidates(name):
            return
        if "export" in words:
            scope.mark(name)
        scope.assign(name, value, line)
        return
    found = _EXPORT.fullmatch(content)
    if found is None:
        return
    names = (found[2] or "").split()
    if not names:
        scope.all_exported = not found[1]
    for name in names:
        if found[1]:
            scope.hide(name)
        else:
            scope.export(name)


def _value(match: re.Match[str], scope: Scope) -> str:
    if match[0] == "$$":
        return "$"
    name = match[1] or match[2]
    value = scope.lookup(name, False) if name else None
    return UNKNOWN if value is None else value


def _for_shell(match: re.Match[str], scope: Scope) -> str:
    """$(X) of make, as the shell will see it; what is not known stays so."""
    if match[0] == "$$":
        return "$"
    value = _value(match, scope)
    return UNKNOWN if "\n" in value else value

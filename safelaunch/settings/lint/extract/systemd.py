"""What a unit of systemd sets."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.shell import read as read_shell
from safelaunch.settings.lint.extract.words import UNKNOWN, blank_separated, expand

_ENTRY = re.compile(r"^[ \t]*(Environment|Exec[A-Z][A-Za-z]*)[ \t]*=((?:[^\n\\]|\\[^\n]|\\\n)*)", re.MULTILINE)
_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read(text: str, line: int, scope: Scope) -> None:
    """Note what `Environment=` and the commands of a unit set; see `readers.read_as`."""
    before = 0
    for match in _ENTRY.finditer(text):
        line += text.count("\n", before, match.start(2))
        before = match.start(2)
        if match[1] != "Environment":
            read_shell(match[2].lstrip(" \t@:+!-"), line, Scope(scope.found, scope))
            continue
        for word in blank_separated(match[2], line):
            said = _NAME_VALUE.fullmatch(expand(word.raw.replace("$", "\\$")))
            if said:
                scope.found.add(said[1], UNKNOWN if "%" in said[2] else said[2], word.line)

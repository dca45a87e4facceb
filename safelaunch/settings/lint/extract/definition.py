"""What an Apptainer (Singularity) definition file sets."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.shell import read as read_shell

_SECTION = re.compile(r"^%(\w+)[^\n]*\n((?:(?!%[a-z])[^\n]*(?:\n|\Z))*)", re.MULTILINE)
# What %post and the other sections of a build set is gone when the build is done.
_SHELL = frozenset(
    [
        "environment",
        "appenv",
        "runscript",
        "startscript",
        "apprun",
        "appstart",
    ]
)


def read(text: str, line: int, scope: Scope) -> None:
    """Note what the sections of a definition file set that a shell reads; see `readers.read_as`."""
    before = 0
    for match in _SECTION.finditer(text):
        line += text.count("\n", before, match.start(2))
        before = match.start(2)
        if match[1] in _SHELL:
            read_shell(match[2], line, Scope(scope.found, scope))

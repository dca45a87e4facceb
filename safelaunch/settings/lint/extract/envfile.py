"""What files of NAME=VALUE lines set: `.env`, `--env-file`, `.deepspeed_env`, `nccl.conf`."""

from __future__ import annotations

import re

from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.words import expand, interpolate

_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*([^\n]*)")
_VALUE = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')[ \t]*(?:\#.*)?|(.*?)(?:[ \t]+\#.*)?[ \t]*""")


def read(text: str, line: int, scope: Scope) -> None:
    """Note what an environment file sets: quotes are taken off, what follows ` #` is a comment."""
    for number, content in enumerate(text.split("\n"), line):
        match = _LINE.fullmatch(content)
        if match is None:
            continue
        value = _VALUE.fullmatch(match[2])
        quoted, bare = value.groups() if value else (None, match[2])
        said = expand(quoted, scope.lookup) if quoted else interpolate(bare, scope.lookup)
        scope.mark(match[1])
        scope.assign(match[1], said, number)


def read_plain(text: str, line: int, scope: Scope) -> None:
    """Note what a file sets of which each line is taken as it stands, quotes and all (NCCL, DeepSpeed, pam_env)."""
    for number, content in enumerate(text.split("\n"), line):
        match = _LINE.fullmatch(content)
        if match is not None:
            scope.found.add(match[1], interpolate(match[2].rstrip(), scope.lookup), number)

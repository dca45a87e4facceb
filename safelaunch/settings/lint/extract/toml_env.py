"""What the tables of a TOML file set that hold an environment: `[env]` of mise, Fly or Pixi, `[tool.x.env]`."""

from __future__ import annotations

import sys
from typing import Any

from safelaunch import toml
from safelaunch.settings.lint.extract.job_spec import is_environment
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.words import interpolate
from safelaunch.settings.toml_lines import KeyPath, key_lines, line_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(text: str, line: int, scope: Scope) -> None:
    """Note what the environments of a TOML text set; see `readers.read_as`."""
    try:
        document = toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        scope.found.unreadable(line, f"it is no valid TOML: {error}")
        return
    lines = key_lines(text)

    def walk(table: dict[str, Any], path: KeyPath, inside: bool) -> None:
        for key, value in table.items():
            here = (*path, key)
            if isinstance(value, dict):
                walk(value, here, is_environment(key))
            elif inside and isinstance(value, (str, int, float)):
                said = interpolate(value, scope.lookup) if isinstance(value, str) else str(value)
                scope.found.add(key, said, line + line_of(lines, here) - 1)

    walk(document, (), False)

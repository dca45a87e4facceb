"""Which module reads which kind of file; each is loaded when the first file of its kind is read."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safelaunch.settings.lint.extract.scope import Scope

DEEPEST = 6  # scripts within scripts; each level reads its text once more

Reader = Callable[[str, int, "Scope"], None]

# Kind -> module and function.
READERS: dict[str, tuple[str, str]] = {
    "shell": ("shell", "read"),
    "dockerfile": ("dockerfile", "read"),
    "definition": ("definition", "read"),
    "yaml": ("job_spec", "read_yaml"),
    "json": ("job_spec", "read_json"),
    "env": ("envfile", "read"),
    "plain-env": ("envfile", "read_plain"),
    "systemd": ("systemd", "read"),
    "modulefile": ("modulefile", "read"),
    "lua": ("modulefile", "read_lua"),
    "makefile": ("makefile", "read"),
    "markdown": ("markdown", "read"),
    "python": ("python", "read"),
    "toml": ("toml_env", "read"),
}


def read_as(kind: str, text: str, line: int, scope: Scope) -> None:
    """Note what a text sets.

    Args:
        kind: one of READERS.
        text: the whole text, with \\n between its lines.
        line: the line on which it starts.
        scope: the variables around it, and what takes the findings.
    """
    module, function = READERS[kind]
    reader: Reader = getattr(import_module(f"safelaunch.settings.lint.extract.{module}"), function)
    reader(text, line, scope)

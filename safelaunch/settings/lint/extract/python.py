"""What Python text within another file sets by `os.environ`: `python - <<EOF`, or an example in Markdown."""

from __future__ import annotations

from safelaunch.settings.lint import script
from safelaunch.settings.lint.extract.scope import Scope
from safelaunch.settings.lint.extract.words import UNKNOWN


def read(text: str, line: int, scope: Scope) -> None:
    """Note what a script sets; see `readers.read_as`."""
    for setting in script.assignments(text, ""):
        here = int(setting.origin.where.rpartition(":")[2])
        scope.found.add(setting.name, UNKNOWN if setting.value is None else setting.value, line + here - 1)

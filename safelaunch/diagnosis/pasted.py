"""Texts of others in advice, which people paste into a shell: names that can be nothing but names."""

from __future__ import annotations

import re
import signal

from safelaunch.model import Location

_NAME = r"[A-Za-z_][\w.]{0,99}"
_FILE = re.compile(r"[\w./-]{1,400}")
_TERM = rf"(?:{_NAME}|-?\d+)(?:\((?:[\w.]+(?:, ?[\w.]+)*)?\))?"
_CONDITION = re.compile(rf"{_TERM}(?: (?:[<>=!]=?|in|[-+*%]|is|not) {_TERM}){{0,3}}")
_SIGNALS = frozenset(each.name for each in signal.Signals)


def name(told: str, other: str) -> str:
    """A name of a program, such as that of an operation; `other` where it could be anything else."""
    return told if re.fullmatch(_NAME, told) else other


def condition(told: str, other: str) -> str:
    """A condition, such as `step < most`, between backticks; `other` where it has more in it than names."""
    return f"`{told}`" if _CONDITION.fullmatch(told) else other


def place(told: Location | None) -> Location | None:
    """A place; None where the name of its file has characters that hardly a program's has."""
    return told if told is not None and _FILE.fullmatch(told.file) else None


def signal_name(told: str, other: str = "that signal") -> str:
    """The name of a signal that there is."""
    return told if told in _SIGNALS else other

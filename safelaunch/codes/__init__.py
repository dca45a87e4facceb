"""The SL catalogue: every code that safelaunch can print, with its title and where its text lives.

A code once shipped keeps its meaning. `safelaunch explain CODE` prints the docstring found at `text`
(`module:function` below safelaunch), so that the explanation cannot drift from the code that concludes it.
"""

from __future__ import annotations

from safelaunch.codes import after, before
from safelaunch.codes.entry import Code, Trait

__all__ = ["CATALOGUE", "Code", "Trait", "all_with", "has"]

EXIT_OK = 0
EXIT_SCRIPT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_TELL = 3  # of `diagnose`
EXIT_NOTHING_WRONG = 4  # of `diagnose`
EXIT_REFUSED = 69
EXIT_OUR_FAULT = 70
EXIT_INFRASTRUCTURE = 75
EXIT_PROFILE = 78
EXIT_HANG = 124
EXIT_SIGINT = 130

CATALOGUE: dict[str, Code] = {entry.code: entry for entry in (*before.CODES, *after.CODES)}


def has(code: str, trait: Trait) -> bool:
    """Whether this holds of a code; of one that is not known, as a newer version's, nothing does."""
    entry = CATALOGUE.get(code)
    return entry is not None and trait in entry.traits


def all_with(trait: Trait) -> tuple[str, ...]:
    """The codes of which this holds."""
    return tuple(code for code, entry in CATALOGUE.items() if trait in entry.traits)

"""Runs in: the fork server, and what is forked from it. What imports have noted down in tables of Python's own library:
how classes are pickled, and lines of source files. A script is to find that where it has made the import, too.
"""

from __future__ import annotations

import copyreg
import linecache
from typing import Any, Container, Dict, Optional, Tuple

from safelaunch.worker.import_conditions import STANDARD

LINES = "torch"  # whose import reads source files
Hidden = Dict[Tuple[str, Any], Any]  # package, key -> value
_TABLES: Tuple[Dict[Any, Any], ...] = (copyreg.dispatch_table, linecache.cache)


def hide() -> Hidden:
    """Take out of the tables what packages of others have put in; returns it."""
    hidden: Hidden = {}
    for table in _TABLES:
        for key in list(table):
            package = _package(key)
            if package not in STANDARD:
                hidden[package, key] = table.pop(key)
    return hidden


def show(hidden: Hidden, packages: Optional[Container[str]] = None) -> None:
    """Put it back, but for what the script has put there itself, and take it out of `hidden`.

    Args:
        hidden: from `hide`.
        packages: whose entries come back; None for all.
    """
    for package, key in list(hidden):
        if packages is None or package in packages:
            table = _TABLES[isinstance(key, str)]
            table.setdefault(key, hidden.pop((package, key)))


def _package(key: Any) -> str:
    return LINES if isinstance(key, str) else str(key.__module__).partition(".")[0]

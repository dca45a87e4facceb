"""Runs in: the fork server, and what is forked from it. The loggers that imports have made, out of Python's table: who
configures logging before his own imports is to find none of them.
"""

from __future__ import annotations

import logging
from typing import Any, Container, Dict, Optional

_manager = logging.root.manager


def hide() -> Dict[str, Any]:
    """Take all of them out of the table; returns them by their names."""
    hidden: Dict[str, Any] = dict(_manager.loggerDict)
    _manager._clear_cache()  # type: ignore[attr-defined]  # the level of the root may be another when they come back
    _manager.loggerDict.clear()
    return hidden


def show(hidden: Dict[str, Any], packages: Optional[Container[str]] = None) -> None:
    """Put loggers back, and take them out of `hidden`. A logger that the script has made under the same name and that
    of the module are one.

    Args:
        hidden: from `hide`.
        packages: whose loggers come back; None for all.
    """
    for name in list(hidden) if packages is None else [name for name in hidden if name.partition(".")[0] in packages]:
        kept = hidden.pop(name)
        made = _manager.loggerDict.setdefault(name, kept)
        if made is not kept:
            kept.__dict__ = made.__dict__


def made(hidden: Dict[str, Any]) -> str:
    """The first logger that the script has made, and that a module has, too; empty for none."""
    return min((name for name in _manager.loggerDict if not _is_placeholder(hidden.get(name))), default="")


def _is_placeholder(logger: Any) -> bool:
    return logger is None or not hasattr(logger, "level")

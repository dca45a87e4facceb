"""Runs in: the fork server, and what is forked from it. The loggers and handlers that imports have made, out of
Python's tables: who configures logging before his own imports is to find none of them.
"""

from __future__ import annotations

import logging
from typing import Any, Container, Dict, List, NamedTuple, Optional

_manager = logging.root.manager


class Hidden(NamedTuple):
    """What imports have made: loggers by their names, and weak references to handlers, as logging keeps them."""

    loggers: Dict[str, Any]
    handlers: List[Any]


def hide() -> Hidden:
    """Take all of them out of the tables."""
    _manager._clear_cache()  # type: ignore[attr-defined]  # the level of the root may be another when they come back
    kept: List[Any] = logging._handlerList  # type: ignore[attr-defined]
    hidden = Hidden(dict(_manager.loggerDict), [handler for handler in kept if handler() is not logging.lastResort])
    _manager.loggerDict.clear()
    kept[:] = [handler for handler in kept if handler() is logging.lastResort]
    return hidden


def show(hidden: Hidden, packages: Optional[Container[str]] = None) -> None:
    """Put them back, and take them out of `hidden`. A logger that the script has made under the same name and that of
    the module are one.

    Args:
        hidden: from `hide`.
        packages: whose loggers come back; None for all, and for the handlers.
    """
    names = list(hidden.loggers)
    for name in names if packages is None else [name for name in names if name.partition(".")[0] in packages]:
        kept = hidden.loggers.pop(name)
        made = _manager.loggerDict.setdefault(name, kept)
        if made is not kept:
            kept.__dict__ = made.__dict__
    if packages is None:
        logging._handlerList.extend(hidden.handlers)  # type: ignore[attr-defined]
        del hidden.handlers[:]


def made(hidden: Hidden) -> str:
    """The first logger that the script has made, and that a module has, too; empty for none."""
    return min((name for name in _manager.loggerDict if not _is_placeholder(hidden.loggers.get(name))), default="")


def _is_placeholder(logger: Any) -> bool:
    return logger is None or not hasattr(logger, "level")

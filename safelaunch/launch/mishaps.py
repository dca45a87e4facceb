"""Faults of our own in the supervisor's loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safelaunch.launch.journal import Journal

MOST = 100  # in one run before we give up


class Mishaps:
    """Keeps them from ending a run that is healthy.

    Args:
        journal: of the run.
        tell: says what is missing for the rest of it.
    """

    def __init__(self, journal: Journal, tell: Callable[[str], None]) -> None:
        self._journal = journal
        self._tell = tell
        self._count = 0

    def safely(self, action: Callable[..., None], **values: Any) -> None:
        """Do it; a fault is told once, and the loop goes on."""
        try:
            action(**values)
        except Exception as error:
            self._count += 1
            if self._count > MOST:
                raise
            name = getattr(action, "__name__", "an action")
            self._journal.write("mishap", action=name, error=repr(error))
            if self._count == 1:
                self._tell(f"safelaunch's own fault in {name}, the run goes on: {error!r}")

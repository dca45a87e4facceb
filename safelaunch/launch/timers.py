"""What is to be done later: one deadline for each action."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

Action = Callable[[], None]


class Timers:
    """Actions, each with the CLOCK_MONOTONIC at which it is due."""

    def __init__(self) -> None:
        self._due: dict[Action, float] = {}

    def after(self, seconds: float, action: Action) -> None:
        """Have it done in so many seconds; an earlier deadline of the same action is forgotten."""
        self._due[action] = time.monotonic() + seconds

    def clear(self) -> None:
        """Nothing is to be done any more."""
        self._due.clear()

    def wait(self, limit: float | None = None) -> float | None:
        """Seconds to the first deadline, `limit` at most; None where there is neither."""
        now = time.monotonic()
        waits = [due - now for due in self._due.values()]
        if limit is not None:
            waits.append(limit)
        return max(0.0, min(waits)) if waits else None

    def take(self) -> Iterator[Action]:
        """The actions that are due, each once; one that the action before it has put off or called off is left out."""
        now = time.monotonic()
        for action in [action for action, due in self._due.items() if due <= now]:
            if self._due.get(action, float("inf")) <= now:
                del self._due[action]
                yield action

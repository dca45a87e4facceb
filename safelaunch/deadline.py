"""Calls that cannot be interrupted, with a deadline all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(deadline_s: float, call: Callable[[], T]) -> T:
    """The result of a call, or TimeoutError (an OSError) at the deadline; the call then goes on in its thread."""
    outcome: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="within", daemon=True)
    thread.start()
    thread.join(deadline_s)
    if errors:
        raise errors[0]
    if not outcome:
        raise TimeoutError(f"no answer within {deadline_s:g} s")
    return outcome[0]

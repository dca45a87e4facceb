"""Faults of our own: one is told, costs the part in which it happens, and never the run."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from safelaunch.shortened import shortened

LONGEST = 300  # characters of a fault: the words of some hold all that they were about


class contained:
    """Contains what its block raises: the fault is told, and the run goes on behind the block.

    ```
    with contained(console.degraded, "hangs are not watched for any more"):
        return self._poll(group)
    self._watch = None  # only a fault leads here
    ```

    Args:
        tell: takes the sentence about the fault.
        cost: what there is not, or not any more, because of it.
    """

    def __init__(self, tell: Callable[[str], None], cost: str) -> None:
        self._tell = tell
        self._cost = cost

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False  # none, or one that is to end the process
        self._tell(f"safelaunch's own fault, {self._cost}: {shortened(repr(error), LONGEST)}")
        return True

"""How far one process of a probe has come. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

# What a probe writes on stderr before it imports torch: so it is known where one was that did not finish.
IMPORTING = "import torch"


@dataclass(frozen=True)
class Progress:
    """What one process of a probe did. `entered` and `left` count `steps` in their order.

    `failed_s` is the time of its own failure in seconds since the processes were started, None for none: then `error`
    is the exception's text, or empty for one that died without, with `exit_code` as `subprocess` gives it.
    `last_words` is the last line that it printed.
    """

    steps: ClassVar[tuple[str, ...]] = ()

    rank: int
    entered: int = 0
    left: int = 0
    failed_s: float | None = None
    error: str = ""
    exit_code: int | None = None
    last_words: str = ""

    @property
    def done(self) -> bool:
        return self.left == len(self.steps)

    @property
    def where(self) -> str:
        if self.entered > self.left:
            return f"in {self.steps[self.left]}"
        return f"before {self.steps[self.left]}" if self.left < len(self.steps) else "at the end"


def exit_text(code: int | None) -> str:
    """`exit code 3`, `signal 9`."""
    if code is None:
        return "an unknown status"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def series(noun: str, items: Sequence[object]) -> str:
    """`rank 2`; `ranks 0, 1 and 3`."""
    words = [str(item) for item in items]
    return f"{noun} {words[0]}" if len(words) == 1 else f"{noun}s {', '.join(words[:-1])} and {words[-1]}"

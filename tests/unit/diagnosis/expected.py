"""What a person says of a golden case."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Location


@dataclass(frozen=True)
class Expected:
    """What a verdict must say of a case. `location` is (file, line), `mentions` are pieces of the summary or of the
    reasons, `conclusive` is said of hangs only."""

    code: str
    culprit_ranks: tuple[int, ...] = ()
    location: tuple[str, int] | None = None
    secondary: tuple[int, ...] = ()
    confidence: str = "high"
    conclusive: bool | None = None
    mentions: tuple[str, ...] = ()


def place(location: Location) -> tuple[str, int]:
    return (location.file, location.line)

"""What a reason says of a rank that does not come."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Location


@dataclass(frozen=True)
class Stall:
    """Why a rank does not come. `what` completes "rank 3 ..."; `sources` names the kinds of evidence that agree."""

    code: str
    what: str
    location: Location | None
    remedy: str
    because: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

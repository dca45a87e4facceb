"""What ranks say of values that are to be the same on all of them (`safelaunch.expect_same`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Told:
    """What one rank has for one part of a value. `number` counts the rank's calls with this `name`; `digest` is of all
    of it, and `shown` its beginning; `place` is the line that calls."""

    rank: int
    name: str
    number: int
    part: str
    digest: str
    shown: str
    place: str

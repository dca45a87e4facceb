"""What is told of a known exception."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Location


@dataclass(frozen=True)
class Told:
    """`code` replaces that of a plain exception (empty: it does not), `what` completes "rank 3 ..." and "ranks 1 and 3
    ..." (empty: what it raised), `whole` is the summary where the ranks that raised it are not the ones it is about.
    `doubt` lowers the confidence by a step, `location` is a better place than where the exception came up."""

    code: str
    what: str
    because: tuple[str, ...] = ()
    remedy: str = ""
    whole: str = ""
    doubt: bool = False
    location: Location | None = None

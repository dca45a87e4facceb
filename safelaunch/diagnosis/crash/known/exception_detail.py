"""What a known exception means in its details."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Location


@dataclass(frozen=True)
class ExceptionDetail:
    """What a verdict says of an exception beyond its type and its message.

    Args:
        code: replaces that of a plain exception; empty where it does not.
        what: completes "rank 3 ..." and "ranks 1 and 3 ..."; empty where what it raised says it all.
        because: the lines that show it.
        remedy: what to do.
        summary: the whole sentence, where the ranks that raised it are not those that it is about.
        doubt: lowers the confidence by a step.
        location: a better place than that at which the exception came up.
    """

    code: str
    what: str
    because: tuple[str, ...] = ()
    remedy: str = ""
    summary: str = ""
    doubt: bool = False
    location: Location | None = None

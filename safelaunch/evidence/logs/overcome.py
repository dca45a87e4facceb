"""What was lost and came again, as a later line of the same file says: connections, and servers that waited, or refused
a request, and served requests later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.evidence.logs import failing, harmless, survival
from safelaunch.evidence.logs.contents import Contents, Origin
from safelaunch.evidence.logs.sieve import Sieve
from safelaunch.evidence.logs.survival import Steps
from safelaunch.model.logs import Event, Sighting

SOON = 50  # lines behind, within which somebody says so
_AGAIN = re.compile(
    rb"\b[Rr]e-?connected\b|\b[Cc]onnection (?:to \S{1,80} )?(?:was |has been |is )?(?:restored|re-?established|back)\b"
    rb"|\bback online\b|\bnfs: server \S{1,253} OK\b|\b[Ll]ink (?:is )?[Uu]p\b"
)
# A server that has started, and a request that it has answered.
_READY = re.compile(rb"Application startup complete|\bis fired up and ready\b|Uvicorn running on|Server is ready\b")
_SERVED = re.compile(rb"\"POST \S{1,200} HTTP/[\d.]{1,4}\" 200\b")
_OF_SERVERS = {"engine-stuck", "error-level"}
SERVED = 5  # requests that are answered behind a line: those that had begun before it are answered first
_OF_A_START = {"checkpoint-misfit"}  # what ends a job before its first step
_LOST = {"connection-failed", "kernel-alarm", "trouble"}


def lines(contents: Contents, sieve: Sieve) -> set[int]:
    """The lines that tell of lost connections, behind each of which a line says that there is one again, and those that
    hold a word of trouble, behind which their process made progress.

    Args:
        contents: of one file.
        sieve: that has read the file.
    """
    events = [event for _, event in contents.events]
    return _came_again(events, sieve) | {
        one.at.line
        for origin, one in contents.events
        if isinstance(one, Sighting)
        and any(survival.went_on(one.at, steps) for steps in _refuting(contents, origin, one))
    }


def _refuting(contents: Contents, origin: Origin, one: Sighting) -> Iterable[Steps]:
    """The streams whose steps show that a line meant nothing: of a weight that was left out, those of any rank."""
    if one.known.name in _OF_A_START:
        return contents.steps.values()
    doubtful = one.known.name == "trouble" and failing.is_doubtful(one.at.text, one.at.text)
    return [contents.steps[origin]] if doubtful and origin in contents.steps else ()


def _came_again(events: Sequence[Event], sieve: Sieve) -> set[int]:
    """The lines that tell of lost connections. Such a line is taken back by one that stands behind it."""
    again: set[int] = set()
    for first, part in ((1, sieve.sample), (sieve.tail_line, sieve.tail)):
        again |= {first + part.count(b"\n", 0, match.start()) for match in _AGAIN.finditer(part)}
    found: set[int] = set()
    lost = (event for event in events if isinstance(event, Sighting) and _is_lost(event)) if again else ()
    for event in sorted(lost, key=lambda event: -event.at.line):
        behind = sorted(line for line in again if event.at.line < line)
        if len(behind) >= event.times and behind[0] - event.at.line <= SOON and event.at.line not in found:
            again -= set(behind[: event.times])
            found.add(event.at.line)
    return found | _served(events, sieve)


def _served(events: Iterable[Event], sieve: Sieve) -> set[int]:
    """The lines of a server that waited, or logged an error, behind which it has started and answered requests."""
    ready, served = (
        sorted(
            {
                first + part.count(b"\n", 0, match.start())
                for first, part in ((1, sieve.sample), (sieve.tail_line, sieve.tail))
                for match in pattern.finditer(part)
            }
        )
        for pattern in (_READY, _SERVED)
    )
    if not ready or len(served) < SERVED:
        return set()
    last = served[-SERVED]
    said = (one for one in events if isinstance(one, Sighting) and one.known.name in _OF_SERVERS)
    return {one.at.line for one in said if one.at.line < last and one.times == 1}


def _is_lost(event: Sighting) -> bool:
    return event.known.name in _LOST or (event.known.role == "consequence" and harmless.retries(event.at.text))

"""Lines that a terminal or a page has broken where they were too wide, put together where an open bracket shows it: of
an address, and of the work that a watchdog gave up on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any

from safelaunch.evidence.logs.complaints import Complaints
from safelaunch.evidence.logs.sieve import Sieve

NARROW = 40  # characters: no line is broken before
_LONGEST = 1 << 12  # bytes from the end of a line in which a bracket is looked for
# How a line ends within a bracket, and how the next one goes on in it.
_BRACKETS = (
    (
        re.compile(rb"\b(?:to|with|from|at|of|on) \(\[?[\w.:-]{1,253}\]?(?:, ?\d{0,5})?$"),
        re.compile(rb"[\w.:-]{0,253}\]?,? ?\d{0,5}\)"),
    ),
    (re.compile(rb"\bWork[A-Z]\w{1,20}\([^()]{0,200}$"), re.compile(rb"[\w=, ]{0,200}(?:\(ms\)=\d{1,15})?\)")),
)


def joined(sieve: Sieve, stream: IO[bytes], complaints: Complaints[Any]) -> Iterator[tuple[int, bytes]]:
    """The lines of interest of a file, each with its number; of one that was broken, that of its first part.

    Args:
        sieve: that reads the file.
        stream: of the file.
        complaints: of the file, which are not to look at the rest of a line alone.
    """
    held: tuple[int, bytes, re.Pattern[bytes]] | None = None
    for number, raw in sieve.lines_of(stream):
        if held is not None:
            first, begun, goes_on = held
            held = None
            if number == first + 1 and goes_on.match(raw):
                complaints.pass_over(number)
                yield first, begun + raw
                continue
            yield first, begun
            sieve.told = False
        opened = next((rest for ends, rest in _BRACKETS if _is_open(raw, ends)), None)
        if opened is None:
            yield number, raw
        else:
            held, sieve.told = (number, raw, opened), True
            sieve.attend(1)
    if held is not None:
        yield held[:2]


def _is_open(raw: bytes, ends: re.Pattern[bytes]) -> bool:
    return b"(" in raw and len(raw) >= NARROW and ends.search(raw, max(0, len(raw) - _LONGEST)) is not None

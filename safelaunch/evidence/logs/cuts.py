"""Whether a file is a part of a longer log: it begins or ends within a sentence, or says that lines were left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

FEW, MOST = 3, 0.9  # lines, and the share of them that shows a habit

_LEFT_OUT = re.compile(
    r"^\W{0,8}(?:\d+ (?:more )?lines? )?(?:output |log |lines? )?"
    r"(?:truncated|omitted|snipped|skipped|left out|removed)\W{0,8}$"
    r"|^\s*(?:\.{3,}|\[\.{3}\]|<snip>|\[snip\]|\u2026)\s*$",
    re.IGNORECASE,
)
_REST_OF_A_SENTENCE = re.compile(
    r"^\s*[,;)\]}]|^\s+File \"|^#\d+ \S+ from |^\s+exitcode +:"
    r"|^(?!.*(?:Watchdog caught|WorkNCCL\()).*before timing out\."
)
# Marks of loggers that close a bracket which they have not opened: glog's, and vLLM's older ones.
_PLACE = re.compile(r"(?<![\[\w])(?:[EWIF]\d{3,4}|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d) [^\[\]]{0,200}\]")
_SENTENCE_OPEN = re.compile(
    r"Watchdog caught\b(?!.*before timing out)|Traceback \(most recent call last\):\s*$|(?:Last error|what\(\)):\s*$"
    r"|PG status:(?!.*completed)|last enqueued(?!.*completed)"
    r"|\b(?:received by|due to|from|the|a|of|is|and|to|with|but)\s*$"
    r"|^\s+File \"|^\s*(?:time|host|rank|exitcode|error_file)\s+:"
)


def of(sample: bytes, tail: bytes, *, has_end: bool) -> str:
    """How a file shows that it is a part of a longer one, or nothing.

    Args:
        sample: how it begins.
        tail: how it ends.
        has_end: whether its last line has an end.
    """
    lines = sample.decode("utf-8", "replace").splitlines()
    last = tail.decode("utf-8", "replace").rstrip().rpartition("\n")[2]
    filled = [line for line in lines if line.strip()]
    if filled and (_begins_within(filled[0]) or _stands_apart(filled)):
        return "begins within a sentence"
    if _ends_within(last, has_end=has_end):
        return "ends within a sentence"
    return "says that lines were left out" if any(_LEFT_OUT.search(line) for line in lines) else ""


def _begins_within(line: str) -> bool:
    return _REST_OF_A_SENTENCE.search(line) is not None or _left_open(line) < 0


def _stands_apart(lines: Sequence[str]) -> bool:
    """Whether the first line begins with a small letter, where nearly all others begin with a mark or a date."""
    others = sum(line[:1] in "[(<" or line[:1].isdigit() for line in lines[1:])
    return re.match(r"[a-z]+[ ,.]", lines[0]) is not None and len(lines) > FEW and others >= MOST * (len(lines) - 1)


def _ends_within(line: str, *, has_end: bool) -> bool:
    """A line without an end is no sign by itself: what is copied from a terminal has none."""
    if _SENTENCE_OPEN.search(line):
        return True
    return not has_end and (_left_open(line) > 0 or line.rstrip().endswith((",", "=")))


def _left_open(line: str) -> int:
    """Brackets that were opened and not closed; below zero, those that were closed and not opened."""
    line = _PLACE.sub("", line)
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))

"""Documents of JSON that stand within lines of a text, such as a log has them: they are looked at as documents, by the
names of their fields and the words of their command lines. Standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MOST = 1 << 16  # characters of a line
TRIES = 4  # places in a line at which one may begin
_BEGIN = re.compile(r"[\[{](?=\s{0,8}[\[{\"])")
_DECODER = json.JSONDecoder()


def without(value: str, shown: Callable[[Any], Any]) -> str:
    """Lines in which each document is as `shown` makes it; one that stays as it is keeps its spelling.

    Args:
        value: lines.
        shown: gives a document without its secrets.
    """
    if '"' not in value or _BEGIN.search(value) is None:
        return value
    return "\n".join(_line(line, shown) for line in value.split("\n"))


def _line(line: str, shown: Callable[[Any], Any]) -> str:
    if len(line) > MOST:
        return line
    at = 0
    for _ in range(TRIES):
        begin = _BEGIN.search(line, at)
        if begin is None:
            break
        try:
            found, end = _DECODER.raw_decode(line, begin.start())
            told = shown(found)
        except (ValueError, RecursionError):
            at = begin.end()
            continue
        if told != found:
            spaced = re.search(r"[\w\"\]}][:,] ", line[begin.start() : end]) is not None
            text = json.dumps(told, ensure_ascii=line.isascii(), separators=None if spaced else (",", ":"))
            line = f"{line[: begin.start()]}{text}{line[end:]}"
            end = begin.start() + len(text)
        at = end
    return line

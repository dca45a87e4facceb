"""Manifests of `kind: Secret`, in YAML and in JSON: all that stands under `data` and `stringData`, whatever its key."""

from __future__ import annotations

import re

from safelaunch.redaction.commands import REDACTED
from safelaunch.redaction.told import MARKS

_KIND = re.compile(r"\bkind\\{0,8}[\"']?:\s{0,3}\\{0,8}[\"']?Secret(?![\w.])")
MOST = 16_384  # characters on either side of the kind
MOST_LINES = 40_000  # on either side, up to the next kind: a Secret may have 1 MiB
DEEPEST = 32  # objects within each other
_DATA = re.compile(r"[\"'](?:data|stringData)\\{0,8}[\"']\s{0,3}:\s{0,3}\{")
_ENTRY = re.compile(
    rf"([\s{MARKS}]{{0,80}},?[\s{MARKS}]{{0,80}}"
    r"\\{0,8}[\"'][\w.-]{1,253}\\{0,8}[\"']\s{0,3}:\s{0,3})"
    r"(?:\"((?:[^\"\\]|\\.)*)\"|(\\{1,8}\")((?:[^\"\\]|\\[^\"])*)\\{1,8}\"|'([^'\n]*)')"
)
# A line of YAML: what a log puts in front, its indent, the mark of an item, its key, what follows.
_LINE = re.compile(
    rf"([{MARKS}]?(?:\[[\w .:-]{{1,40}}\]:?[ \t]?)?)([ ]*)((?:- )?)([^\s:#][^:\n]{{0,253}}:(?=\s|\Z))?(.*)"
)
_FLOW = re.compile(r"([\w.-]{1,253}:\s)([^,}\n]+)")


def without_manifests(value: str) -> str:
    """A text without what its secrets of a cluster hold."""
    if "Secret" not in value or "kind" not in value:
        return value
    parts: list[str] = []
    done = 0
    kinds = [*_KIND.finditer(value)]
    for number, match in enumerate(kinds):
        until = kinds[number + 1].start() if number + 1 < len(kinds) else len(value)
        of_json = value[match.start() + len("kind")] in "\\\"'"
        floor = max(done, kinds[number - 1].end() if number else 0)
        spans = _in_json(value, done, match) if of_json else _in_yaml(value, floor, match, until)
        for begin, end in spans:
            if begin >= done:
                parts += [value[done:begin], REDACTED]
                done = end
    return "".join([*parts, value[done:]]) if parts else value


def _in_json(value: str, done: int, match: re.Match[str]) -> list[tuple[int, int]]:
    """Where the values lie of the object that a kind is a field of."""
    begin = _begin_of_object(value, max(done, match.start() - MOST), match.start())
    if begin is None:
        return []
    end = _end_of_object(value, match.end(), min(match.end() + MOST, len(value)))
    spans = []
    for data in _DATA.finditer(value, begin, end):
        at = data.end()
        while entry := _ENTRY.match(value, at):
            spans += [entry.span(group) for group in (2, 4, 5) if entry[group]]
            at = entry.end()
    return spans


def _begin_of_object(value: str, begin: int, at: int) -> int | None:
    """Where the object begins that `at` lies in."""
    depth = 0
    while depth <= DEEPEST:
        opening, closing = value.rfind("{", begin, at), value.rfind("}", begin, at)
        if opening < 0 and closing < 0:
            return None
        depth += 1 if closing > opening else -1
        at = max(opening, closing)
        if depth < 0:
            return at
    return None


def _end_of_object(value: str, at: int, end: int) -> int:
    """Where the object ends that `at` lies in, or where nothing more of it is looked at."""
    depth = 0
    while depth <= DEEPEST:
        found = [place for place in (value.find("{", at, end), value.find("}", at, end)) if place >= 0]
        if not found:
            return end
        at = min(found)
        depth += 1 if value[at] == "{" else -1
        if depth < 0:
            return at
        at += 1
    return at


def _in_yaml(value: str, done: int, match: re.Match[str], until: int) -> list[tuple[int, int]]:
    """Where the values lie of the block that a kind is a key of."""
    at = max(value.rfind(sign, 0, match.start()) for sign in "\n\"'") + 1  # it may stand in a text of JSON
    own = _LINE.match(value, at)
    if own and value[own.end(3) : match.start()].strip():
        at = match.start()  # words stand in front of it
        own = _LINE.match(value, at)
    if own is None:
        return []
    column = match.start() - own.end(1)
    begin = at
    for _ in range(MOST_LINES):
        before = value.rfind("\n", 0, max(begin - 1, 0)) + 1
        if begin <= done or own[3] or not _belongs(value, before, column):
            break
        begin, own = before, _LINE.match(value, before) or own
    spans: list[tuple[int, int]] = []
    of_data = False
    for _ in range(2 * MOST_LINES):
        end = value.find("\n", begin)
        end = len(value) if end < 0 else end
        line = _LINE.match(value, begin, end)
        if line is None or begin > until or (begin > at and not _belongs(value, begin, column, new=False)):
            break
        depth = line.end(3) - line.end(1)
        if line[4] and depth == column:
            of_data = line[4] in ("data:", "stringData:")
            if of_data and "{" in line[5]:
                spans += [found.span(2) for found in _FLOW.finditer(value, line.start(5), end)]
        elif of_data and depth > column:
            spans += _of_line(line, end)
        begin = end + 1
        if begin > len(value):
            break
    return spans


def _of_line(line: re.Match[str], end: int) -> list[tuple[int, int]]:
    """What goes of a line below `data:`."""
    text = line[5].strip()
    if line[4] and (not text or text[0] in "|>"):
        return []
    begin = line.start(5) + len(line[5]) - len(line[5].lstrip(" \"'"))
    end -= len(line[5]) - len(line[5].rstrip(" \"'\r"))
    return [(begin, end)] if begin < end else []


def _belongs(value: str, begin: int, column: int, *, new: bool = True) -> bool:
    """Whether a line lies in the block whose keys stand at this column."""
    line = _LINE.match(value, begin)
    if line is None or value.startswith("---", line.end(1)):
        return False
    if not line[3] and not line[4] and not line[5].strip():
        return True
    depth = line.end(3) - line.end(1)
    return depth > column or (depth == column and (new or not line[3]))

"""What the writer of a file wants to hear nothing of: `# safelaunch: ignore[SL215]`."""

from __future__ import annotations

import re

_MARK = re.compile(r"(?:#|//|--|;)[ \t]*safelaunch:[ \t]*(ignore(?:-file)?)(?:\[([A-Z0-9, \t]*)\])?", re.IGNORECASE)
ALL = "*"


def ignored(lines: list[str]) -> dict[int, frozenset[str]]:
    """Line -> the codes that are not told of there; line 0 stands for the whole file, `ALL` for every code.

    A mark counts for the line on which it stands. One that has a line of its own counts for the next line with
    something on it, comments left out: what follows may be a line that cannot have a comment.
    """
    found: dict[int, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        match = _MARK.search(line) if "safelaunch" in line else None
        if match is None:
            continue
        codes = frozenset(code.strip().upper() for code in match[2].split(",") if code.strip()) if match[2] else {ALL}
        if match[1].lower() == "ignore-file":
            at = 0
        elif line[: match.start()].strip():
            at = number
        else:
            at = _next(lines, number)
        found[at] = found.get(at, frozenset()) | codes
    return found


def _next(lines: list[str], number: int) -> int:
    for below in range(number + 1, len(lines) + 1):
        text = lines[below - 1].strip()
        if text and not text.startswith(("# ", "#\t", "//")):
            return below
    return number


def is_ignored(code: str, line: int, marks: dict[int, frozenset[str]]) -> bool:
    """Whether nobody wants to hear of a code on a line."""
    return any(code in marks.get(at, ()) or ALL in marks.get(at, ()) for at in (0, line))

"""Which thread of a rank holds the GIL, as far as stacks and source tell."""

from __future__ import annotations

import re

from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.stall.look import Look
from safelaunch.model import Location

# Calls of a line that let go of the GIL: who is in one of them wants it back.
LETS_GO = re.compile(r"\b(?:sleep|select|input|wait)\(")


def holder(look: Look) -> Location | None:
    """The line of the one thread that can hold it. All others are in functions of Python's library that wait, or at a
    line that lets go of it."""
    lines = by_place(look.source)
    inner = [stack.frames[0] for stack in look.facts.stacks if stack.frames and not stack.native]
    at_work = [frame for frame in inner if is_user_code(frame)]
    texts = {frame: lines[frame.file, frame.line].text for frame in at_work if (frame.file, frame.line) in lines}
    may = [frame for frame in at_work if not LETS_GO.search(texts.get(frame, ""))]
    return may[0] if len(may) == 1 else None

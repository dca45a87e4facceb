"""What stacks tell of imports that are under way."""

from __future__ import annotations

import re

from safelaunch.diagnosis.frames import is_user_code
from safelaunch.model import Location, Stack

FILES = re.compile(r"^<frozen importlib\._bootstrap")
MODULE_LOCK = "_ModuleLock.acquire"


def of(stack: Stack | None) -> tuple[str, ...]:
    """Which module a thread imports below the program's own line, and where it stands in it: it may be a library's."""
    frames = stack.frames if stack is not None else ()
    own = next((at for at, frame in enumerate(frames) if is_user_code(frame)), len(frames))
    for at, frame in enumerate(frames[:own]):
        if frame.function == "<module>" and any(map(is_import, frames[at:own])):
            return (f"it imports {frame.file}, and is at line {frame.line} of it",)
    return ()


def is_import(frame: Location) -> bool:
    """Whether a frame is one of Python's own import."""
    return bool(FILES.search(frame.file))


def waits_for_another(frame: Location) -> bool:
    """Whether it waits for a module that another thread imports."""
    return frame.function.endswith(MODULE_LOCK) and is_import(frame)

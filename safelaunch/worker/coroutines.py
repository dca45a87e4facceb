"""Runs in: workers. Where the tasks of asyncio wait: the stack of their thread shows nothing but the event loop."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

MOST = 50  # tasks
DEPTH = 30


def waiting() -> List[Dict[str, Any]]:
    """The tasks that are not done, each with its name and the lines at which it waits, innermost first."""
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None:
        return []
    # From Python 3.12 on there are two sets of them; the accelerated module of 3.14 keeps its own elsewhere.
    known = [task for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks") for task in getattr(tasks, name, ())]
    found = {id(task): task for task in known if not task.done()}
    return [{"name": task.get_name(), "frames": _frames(task.get_coro())} for task in list(found.values())[:MOST]]


def _frames(coroutine: Any) -> List[Dict[str, Any]]:
    """The frames of a coroutine and of what it awaits."""
    found = []  # type: List[Dict[str, Any]]
    while coroutine is not None and len(found) < DEPTH:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        found.append({"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name})
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return found[::-1]

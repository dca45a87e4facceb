"""Scripts that change what the import of torch looks at, as their last run has shown: they start cold at once.

A small document in the user's cache, by the path of the script; a script that was edited since is tried again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from safelaunch import user_files
from safelaunch.deadline import within

NAME = "cold_scripts.json"
MOST = 500  # scripts; the latest ones are kept


def remembered(script: str, environ: Mapping[str, str]) -> str:
    """What the script did when it ran last, such as "sets OMP_NUM_THREADS"; empty where nothing is known."""
    path = _path(environ)
    try:
        known = within(user_files.ANSWER_S, lambda: _load(path)).get(os.path.realpath(script)) if path else None
        return str(known["changed"]) if known is not None and known["stamp"] == _stamp(script) else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def remember(script: str, changed: str, environ: Mapping[str, str]) -> None:
    """Keep what a script has done. What cannot be kept is not: the next run finds it out again."""
    path = _path(environ)
    if not path:
        return

    def keep() -> None:
        known = _load(path)
        known.pop(os.path.realpath(script), None)
        known[os.path.realpath(script)] = {"changed": changed, "stamp": _stamp(script)}
        user_files.keep(path, dict(list(known.items())[-MOST:]))

    try:
        within(user_files.ANSWER_S, keep)
    except (OSError, ValueError, RecursionError):
        pass


def _path(environ: Mapping[str, str]) -> str:
    folder = user_files.cache(environ)
    return os.path.join(folder, "safelaunch", NAME) if folder else ""


def _load(path: str) -> dict[str, Any]:
    try:
        known = user_files.load(path)
    except FileNotFoundError:
        return {}
    return known if isinstance(known, dict) else {}


def _stamp(script: str) -> list[int]:
    status = os.stat(script)
    return [status.st_size, status.st_mtime_ns]

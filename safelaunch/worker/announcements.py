"""Runs in: workers. What a rank tells the supervisor of itself while it runs, in a file beside the black box."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Set, Tuple

from safelaunch import black_box
from safelaunch.worker import rank
from safelaunch.worker.user_code import is_user_code


class Remarks:
    """Appends a JSON line `{"pid", "kind", ...}` for each remark; the same one is written once.

    Args:
        box: a `black_box.Writer`.
    """

    def __init__(self, box: Any) -> None:
        self._box = box
        self._said: Set[str] = set()

    def add(self, kind: str, **facts: Any) -> None:
        """Write down one remark. A forked child is not the rank, and says nothing."""
        if not rank.here:
            return
        line = json.dumps({"pid": os.getpid(), "kind": kind, **facts})
        if line not in self._said:
            self._said.add(line)
            with open(black_box.beside(self._box.path, self._box.index, "announcements"), "a") as file:
                file.write(line + "\n")


def user_line() -> Tuple[str, int]:
    """File and line of the user's own code that led here; the outermost line where there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno

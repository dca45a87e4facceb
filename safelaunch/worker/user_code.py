"""Runs in: workers. Which code is the user's own."""

from __future__ import annotations

import os

STDLIB = os.path.dirname(os.__file__) + os.sep
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_user_code(file: str) -> bool:
    """Whether a file is the user's own: not the standard library, not installed, not generated, not ours."""
    if file.startswith("<") or "/site-packages/" in file or "/dist-packages/" in file:
        return False
    return not file.startswith((STDLIB, OURS))

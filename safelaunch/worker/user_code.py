"""Runs in: workers. Which code is the user's own, where this process knows more than a path tells."""

from __future__ import annotations

import os

from safelaunch import user_code

# A standard library may lie in any folder, as in a build that was not installed.
STDLIB = os.path.dirname(os.__file__) + os.sep
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_user_code(file: str) -> bool:
    """Whether a file is the user's own; as `safelaunch.user_code` says."""
    return user_code.is_user_code(file) and not file.startswith((STDLIB, OURS))

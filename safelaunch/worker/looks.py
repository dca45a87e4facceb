"""Runs in: workers. The paths that the main thread may be looking at, for a program that waits for a file: those that
names in its innermost line hold, and the lock file that a library waits for."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Dict, List, Tuple

from safelaunch.worker.user_code import is_user_code

MOST, LONGEST, DEEP = 16, 512, 64
IN_A_FUNCTION = 1  # of `co_flags`: its names are no dictionary of their own
LOOKING = {"exists", "lexists", "isfile", "is_file", "isdir", "is_dir", "stat", "getmtime", "access", "glob", "listdir"}
# Modules that look at files, or wait, and look at nobody's frames.
PLAIN = {"genericpath", "posixpath", "ntpath", "os", "pathlib", "glob", "fnmatch", "threading", "selectors"}
OWN_NAMES = {"locals", "vars", "eval", "exec", "dir"}  # a function that calls these may keep what we are to let go
# By the end of a file's name: the attribute of its `self` that has the path.
LOCKS = (
    ("/torch/utils/file_baton.py", "lock_file_path"),
    ("/filelock/_api.py", "lock_file"),
)


def at() -> List[Tuple[str, str]]:
    """Names and the paths that they hold, of the innermost function of the program; the lock file of a library comes
    first, without a name. Values that are no path are nobody's business, and are left out."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    inner = None  # what that frame has called
    found = []  # type: List[Tuple[str, str]]
    for _ in range(DEEP):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if is_user_code(file):
            return (found + _of_function(frame, inner))[:MOST]
        for ending, attribute in LOCKS:
            if file.replace("\\", "/").endswith(ending) and not found:
                path = _path(getattr(_locals(frame, inner).get("self"), attribute, None))
                found += [("", path)] if path else []
        frame, inner = frame.f_back, frame
    return found


def _of_function(frame: Any, inner: Any) -> List[Tuple[str, str]]:
    """The names of a function that looks at files: of another one nothing is asked."""
    code = frame.f_code
    if not LOOKING.intersection(code.co_names):
        return []
    names = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals}
    names.update(_locals(frame, inner))
    attributes = getattr(names.pop("self", None), "__dict__", None)
    if isinstance(attributes, dict):
        names.update(("self." + name, attributes[name]) for name in code.co_names if name in attributes)
    paths = ((name, _path(value)) for name, value in list(names.items()))
    return [(name, path) for name, path in paths if path]


def _locals(frame: Any, inner: Any) -> Dict[str, Any]:
    """The local names of a function. Python before 3.13 keeps a copy of them in the frame, which would keep tensors
    alive that the program lets go: it is emptied again. Where a debugger, or the function itself, may use that copy, it
    is not made. Nor is it where the frame has called something (`inner`) that may: Python writes the copy back into the
    function once a callback of `sys.setprofile` has ended, and names that are not in it are gone."""
    code = frame.f_code
    if not code.co_flags & IN_A_FUNCTION or frame.f_trace is not None or OWN_NAMES.intersection(code.co_names):
        return {}
    if inner is not None and str(inner.f_globals.get("__name__")).partition(".")[0] not in PLAIN:
        return {}
    own = frame.f_locals
    found = dict(own)
    if isinstance(own, dict):
        own.clear()
    return found


def _path(value: Any) -> str:
    """A path as it stands; empty for what is none. A relative text may be anything, such as a password."""
    if type(value) is str:
        text = value
        if not text.startswith(("/", "./", "../")):
            return ""
    elif str(type(value).__module__).partition(".")[0] == "pathlib":
        text = os.fspath(value)
    else:
        return ""
    return text if 1 < len(text) <= LONGEST and text.isprintable() else ""

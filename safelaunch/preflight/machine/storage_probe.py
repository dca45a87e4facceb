"""Looks at one directory: whether it answers, how fast, what room it has. As a program it prints that as JSON, in a
process that may be left behind: `storage_probe.py ROOT PATH read|write`.

Its own file must do without the package, which may lie on the same dead file system.
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import time
from typing import Any


def look(root: Any, path: str, *, write: bool) -> dict[str, Any]:
    """What `storage.Volume` holds, for a directory or the nearest one above it that exists.

    Args:
        root: a `Root`.
        path: an absolute path below it.
        write: also try to write, into a file without a name.
    """
    begin = time.monotonic()
    found: dict[str, Any] = {"path": path}
    try:
        found["path"] = path = _existing(root, path)
        found["directory"] = root.is_directory(path)
        if not found["directory"]:
            return found
        root.first_name(path)
    except PermissionError:
        pass  # an answer all the same
    except OSError as error:
        found["error"] = _words(error)
    found["elapsed_s"] = time.monotonic() - begin
    if "error" not in found:
        try:
            space = root.statvfs(path)
            found["total"] = space.f_blocks * space.f_frsize
            found["free"] = space.f_bavail * space.f_frsize
            found["inodes"] = space.f_files
            found["free_inodes"] = space.f_favail
        except OSError as error:
            found["unknown"] = _words(error)
        if write:
            try:
                root.try_write(path)
            except OSError as error:
                # A full disk is told by its numbers; a quota that is full (EDQUOT) is not.
                if error.errno != errno.ENOSPC:
                    found["unwritable"] = _words(error)
    return found


def _existing(root: Any, path: str) -> str:
    while True:
        try:
            root.stat(path)
            return path
        except (FileNotFoundError, NotADirectoryError):
            if path == "/":
                raise
            path = os.path.dirname(path)


def _words(error: OSError) -> str:
    return f"{error.strerror} ({errno.errorcode.get(error.errno or 0, 'unknown')})"


if __name__ == "__main__":
    # `Root` from the file beside this one; `import` would want the whole package.
    make_root = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "root.py"))["Root"]
    json.dump(look(make_root(sys.argv[1]), sys.argv[2], write=sys.argv[3] == "write"), sys.stdout)

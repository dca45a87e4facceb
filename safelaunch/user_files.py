"""Where a user's own files lie, and small documents in the cache that outlive a run. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST = 4 << 20  # bytes of a document of the cache
ANSWER_S = 2.0  # a folder may lie on a file system that does not answer: no run waits for it longer


def config(environ: Mapping[str, str], name: str) -> str:
    """The path of a file or folder that the user may have made."""
    home = environ.get("HOME") or os.path.expanduser("~")
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(folder, "safelaunch", name)


def cache(environ: Mapping[str, str]) -> str:
    """The user's cache folder, which may not exist; "" where there is none."""
    # The XDG Base Directory specification: a relative path is to be ignored.
    folder = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(folder):
        return folder
    home = environ.get("HOME", "")
    return os.path.join(home, ".cache") if os.path.isabs(home) else ""


def state(environ: Mapping[str, str]) -> str:
    """The folder for what a user's programs keep from run to run, which may not exist; "" where there is none."""
    folder = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(folder):
        return folder
    home = environ.get("HOME", "")
    return os.path.join(home, ".local", "state") if os.path.isabs(home) else ""


def load(path: str) -> Any:
    """A document of the cache; None where somebody else wrote it: that is not to be believed.

    Raises:
        OSError, ValueError, RecursionError: where it cannot be read.
    """
    from safelaunch import regular  # which workers do not load

    try:
        return json.loads(regular.read(path, MOST, os.geteuid()))
    except PermissionError:
        return None


def make_folder(folder: str) -> None:
    """Make a folder for ourselves where nobody else can put a link in its way: root has the HOME of another user where
    `sudo` keeps it."""
    above = os.path.dirname(folder)
    way = [str(one) for one in Path(above).parents][::-1] if os.geteuid() == 0 else []
    for one in (*way, above, folder):
        with contextlib.suppress(FileExistsError):
            os.makedirs(one, mode=0o700)
        if os.lstat(one).st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, "it belongs to another user", one)


def keep(path: str, document: Any) -> None:
    """Replace a document of the cache whole: runs that start at the same time read one version or the other.

    Raises:
        OSError: where that is not possible; then nothing is left behind.
    """
    partial = f"{path}.{os.urandom(4).hex()}"
    make_folder(os.path.dirname(path))
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(partial, path)
    except OSError:
        os.unlink(partial)
        raise

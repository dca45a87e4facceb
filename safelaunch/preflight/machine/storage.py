"""Directories that the job needs: on file systems of this machine they are looked at directly, on those of a network
in a child with a deadline."""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from safelaunch.codec import from_json
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.mounts import Mount, mount_of, mounts
from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.machine.storage_probe import look

PROGRAM = str(Path(__file__).with_name("storage_probe.py"))

Run = Callable[[list[str], float], Ended]


@dataclass(frozen=True)
class Volume:
    """What is known of the file system below a directory.

    `path` is the nearest directory that exists; sizes are in bytes. `error` is what the kernel said instead of an
    answer, `unwritable` why nothing can be written there, `unknown` why its room is not known; `late` is set where
    there was no answer within `elapsed_s`.
    """

    path: str
    total: int = 0
    free: int = 0
    inodes: int = 0
    free_inodes: int = 0
    elapsed_s: float = 0.0
    error: str = ""
    unwritable: str = ""
    unknown: str = ""
    late: bool = False
    mount: Mount | None = None


class Storage:
    """Looks at directories, each file system by one at a time, and remembers what it saw."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._seen: dict[tuple[str, bool], Volume] = {}
        self._late: set[str] = set()

    def look(self, root: Root, run: Run, path: str, *, write: bool, deadline_s: float) -> Volume:
        """A directory, or the nearest one above it that exists. On a file system that has been late once nothing else
        is asked."""
        mount = mount_of(root, mounts(root), path)
        if mount is None or not mount.network:
            return replace(from_json(Volume, look(root, path, write=write)), mount=mount)
        with self._lock:
            lock = self._locks[mount.point]
        with lock:
            if mount.point in self._late:
                return Volume(path, elapsed_s=deadline_s, late=True, mount=mount)
            if (path, write) not in self._seen:
                found = _ask(root, run, path, write, deadline_s)
                self._seen[path, write] = replace(found, mount=mount)
                if found.late:
                    self._late.add(mount.point)
            return self._seen[path, write]


def _ask(root: Root, run: Run, path: str, write: bool, deadline_s: float) -> Volume:
    # -I and -S: nothing of the user's and no site-packages, which may be on the same dead file system.
    argv = [sys.executable, "-I", "-S", PROGRAM, root.prefix, path, "write" if write else "read"]
    try:
        ended = run(argv, deadline_s)
        if ended.timed_out:
            return Volume(path, elapsed_s=deadline_s, late=True)
        return from_json(Volume, json.loads(ended.stdout))
    except OSError as error:
        return Volume(path, unknown=f"the probe did not start: {error}")
    except (ValueError, TypeError, KeyError):
        return Volume(path, unknown=f"the probe ended with {ended.returncode}: {ended.last_line}")

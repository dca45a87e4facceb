"""Directories that the job needs. File systems of a network are looked at in a child with a deadline; those of this
machine directly, and what is written to them in a child as well: a frozen or broken disk answers no writer, and a
thread that waits for it would keep this process from its end."""

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
    there was no answer within `elapsed_s`. `directory` is false where `path` is something else.
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
    directory: bool = True
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
            here = replace(from_json(Volume, look(root, path, write=False)), mount=mount)
            if not write or here.error or not here.directory:
                return here
            written = self.written(root, run, path, mount, deadline_s)
            return replace(here, unwritable=written.unwritable, late=written.late, elapsed_s=written.elapsed_s)
        return self._in_child(root, run, path, mount, deadline_s, write=write)

    def written(self, root: Root, run: Run, path: str, mount: Mount | None, deadline_s: float) -> Volume:
        """What came of writing to a file system of this machine."""
        return self._in_child(root, run, path, mount, deadline_s, write=True)

    def _in_child(
        self, root: Root, run: Run, path: str, mount: Mount | None, deadline_s: float, *, write: bool
    ) -> Volume:
        point = mount.point if mount is not None else ""
        with self._lock:
            lock = self._locks[point]
        with lock:
            if point in self._late:
                return Volume(path, elapsed_s=deadline_s, late=True, mount=mount)
            if (path, write) not in self._seen:
                found = _ask(root, run, path, write, deadline_s)
                self._seen[path, write] = replace(found, mount=mount)
                if found.late:
                    self._late.add(point)
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

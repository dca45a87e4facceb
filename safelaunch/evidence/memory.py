"""Whether memory ran out: the `oom_kill` counter of this process's memory cgroup, and the room in /dev/shm."""

from __future__ import annotations

import os

from safelaunch import procfs
from safelaunch.model import Space

SHM = "/dev/shm"


def oom_kills(root: str = "/") -> int | None:
    """Processes of our memory cgroup that the OOM killer ended so far; None where no counter can be read.

    cgroup v2 counts in `memory.events`, v1 in `memory.oom_control`. The line of /proc/self/cgroup may name a path
    that this mount namespace does not show; then the mount's own root is the cgroup.
    """
    for path, name in _candidates(root):
        for folder in (path, ""):
            file = os.path.join(root, "sys/fs/cgroup", folder.lstrip("/"), name)
            if (count := _counter(file)) is not None:
                return count
    return None


def shm(path: str = SHM) -> Space | None:
    """The size of /dev/shm, and what is free of it; None where there is none. It lies in memory and always answers."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return Space(path, status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def _candidates(root: str) -> list[tuple[str, str]]:
    try:
        lines = procfs.lines(procfs.content(os.path.join(root, "proc/self/cgroup")).decode("utf-8", "replace"))
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found.append((path, "memory.events"))
        elif "memory" in controllers.split(","):
            found.append(("memory" + path, "memory.oom_control"))
            found.append(("memory", "memory.oom_control"))
    return found


def _counter(file: str) -> int | None:
    try:
        with open(file, encoding="ascii") as stream:
            for line in stream:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        pass
    return None

"""Scratch folders of launchers that were killed before they had a guard, and their sweep by a later start.

A folder says who made it. It is removed where its maker is known to be dead: made on this boot, in these namespaces of
pids and of clocks, and no process is there any more with its pid and start time; and where no process of its run is
alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from safelaunch import procfs

PREFIX = "safelaunch-"
MEMORY = "/dev/shm"
MAKER = "maker.json"
LONGEST = 1 << 12  # bytes that are read of a file that may be anybody's


def parents() -> tuple[str, ...]:
    """Where scratch folders go, the best place first."""
    try:
        return MEMORY, tempfile.gettempdir()
    except OSError:  # no folder for temporary files can be written
        return (MEMORY,)


def sign(folder: str, token: str) -> None:
    """Write into a new folder who has made it; without that nobody will ever remove it but its maker."""
    own = procfs.read(os.getpid())
    with contextlib.suppress(OSError):
        maker = {"token": token, "pid": own.pid, "start": own.start, **_surroundings()} if own is not None else {}
        with open(os.path.join(folder, MAKER), "w") as file:
            json.dump(maker, file)


def sweep_aside() -> None:
    """Remove, in a thread, the folders whose makers are dead."""
    with contextlib.suppress(RuntimeError):  # no thread can be made: a later start will have one
        threading.Thread(target=sweep, name="sweep", daemon=True).start()


def sweep() -> None:
    """Remove the folders whose makers are dead. Never raises."""
    for folder in abandoned():
        shutil.rmtree(folder, ignore_errors=True)


def abandoned() -> Iterator[str]:
    """The folders of this user whose makers are dead. Never raises."""
    for parent in dict.fromkeys(parents()):
        with contextlib.suppress(OSError):
            for name in os.listdir(parent):
                folder = os.path.join(parent, name)
                if name.startswith(PREFIX) and _is_abandoned(folder):
                    yield folder


def _is_abandoned(folder: str) -> bool:
    maker = _maker(folder)
    token, pid, start = (maker.get(name) for name in ("token", "pid", "start"))
    if not isinstance(pid, int) or os.path.basename(folder) != f"{PREFIX}{token}":
        return False
    if any(maker.get(name) != value for name, value in _surroundings().items()):
        return False  # its pid means nothing here
    process = procfs.read(pid)
    if process is not None and process.start == start:
        return False
    entry = f"SAFELAUNCH_RUN_TOKEN={token}".encode()
    return not any(procfs.in_environ(process.pid, entry) for process in procfs.scan())


def _maker(folder: str) -> dict[str, Any]:
    """What a folder of ours says of its maker; nothing where it is not ours, or a link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return {}
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return {}
        file = os.open(MAKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
        try:
            text = os.read(file, LONGEST) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
        maker = json.loads(text)
        return maker if isinstance(maker, dict) else {}
    except (OSError, ValueError):
        return {}
    finally:
        os.close(descriptor)


def _surroundings() -> dict[str, str]:
    """What tells in which surroundings a pid has its meaning, and the time at which a process was started."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    try:
        clocks = os.readlink("/proc/self/ns/time")
    except OSError:
        clocks = ""  # a kernel before 5.6 has none
    return {"boot": boot, "namespace": os.readlink("/proc/self/ns/pid"), "clocks": clocks}

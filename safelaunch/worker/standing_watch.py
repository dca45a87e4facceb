"""Runs in: processes that call `safelaunch.join()`. Finds who watches the ranks of a job on this node, or starts it.

The first rank of a job on a node starts one process, which lives until the last one has ended. Who is first, a lock
says that this process inherits: nobody else can hold it while it lives, and it is free when it has ended, however that
was.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time

from safelaunch.worker import meeting

MEMORY = "/dev/shm"
WAIT_S = 5.0  # for it to be ready: 0.2 s on an idle machine
POLL_S = 0.01
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = (
    "import sys; sys.path[:1] = []; sys.path.append(%r); from safelaunch.cli.main import main; sys.exit(main())" % ROOT
)


def folder_of(place: meeting.Place) -> str:
    """The folder of the process that watches the job of this place, on this node; "" where there can be none."""
    if sys.version_info < (3, 10) or not sys.executable:
        return ""  # what watches needs 3.10
    folder = _name(place)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if not _is_ours(folder):
            return ""
        if _watches(folder):
            return folder
        lock = _locked(folder)
        if lock >= 0:
            try:
                _start(folder, lock)
            finally:
                os.close(lock)
        time.sleep(POLL_S)
    return ""


def _name(place: meeting.Place) -> str:
    words = "\0".join([str(place.world_size), *place.words])
    digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    parent = MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir()
    return os.path.join(parent, "safelaunch-join-%d-%s" % (os.geteuid(), digest))


def _is_ours(folder: str) -> bool:
    """Whether the folder is there, and this user's alone; it is made where there is none."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(folder)
    private = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    return private and stat.S_ISDIR(status.st_mode)


def _watches(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "watcher")) as file:
            return os.path.exists("/proc/%d" % int(file.read()))
    except (OSError, ValueError):
        return False


def _locked(folder: str) -> int:
    """A descriptor of the lock, where nobody has it; else -1."""
    path = os.path.join(folder, "lock")
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1  # the folder is being taken away
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)) and not _watches(folder):
            return lock
    except OSError:
        pass
    os.close(lock)
    return -1


def _start(folder: str, lock: int) -> None:
    """Start it: it leaves this process at once, which is not to be its parent."""
    command = [sys.executable, "-c", PROGRAM, "exec", "--watch", folder, "--lock", str(lock)]
    subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
        timeout=WAIT_S,
        check=False,
    )

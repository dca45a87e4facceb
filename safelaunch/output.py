"""Writing to what a user has named for a result: a file, `-`, a pipe, a device. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import time

from safelaunch import files

STANDARD_OUTPUT = "-"
PATIENCE_S = 10.0  # for a reader to open a pipe, and to take the next bytes: a run must come to its end
POLL_S = 0.05
MOST_LINKS = 40  # path_resolution(7)
# Paths that mean a descriptor of ours. Opened by name, a file behind one would be written from its beginning, over what
# the ranks have printed there.
_OURS = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_STREAMS = {STANDARD_OUTPUT: 1, "/dev/stdout": 1, "/dev/stderr": 2}
# Why a folder does not let a file in it be replaced that may be written to: not ours, read-only, or a mount by itself.
_NOT_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def write(path: str, data: bytes, patience_s: float | None = None) -> None:
    """Write `data` as a shell's redirection to `path` would; `-` is the standard output.

    Links are followed. A file of ours is replaced whole, by one with the same mode; one that cannot be, or is
    another's, is written into, and so is what is no regular file: a device stays one, and who reads a pipe gets it all.

    Args:
        path: what the user has named.
        data: all of it.
        patience_s: seconds for a reader to come, and to take more; None for `PATIENCE_S`.

    Raises:
        OSError: it has `path` as its name. Nobody reads a pipe, or the disk is full.
    """
    try:
        _write(path, data, PATIENCE_S if patience_s is None else patience_s)
    except OSError as error:
        error.filename = path
        raise


def _write(path: str, data: bytes, patience_s: float) -> None:
    descriptor = _descriptor(path)
    if descriptor is not None:
        _pass_on(descriptor, data, patience_s)
        return
    target = os.path.realpath(path)
    try:
        found: os.stat_result | None = os.stat(target)
    except FileNotFoundError:
        found = None
    if found is None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        files.write_whole(target, data, 0o666)
    elif not (_replaceable(found) and _replaced(target, data, found)):
        _write_into(target, data, found, patience_s)


def _descriptor(path: str) -> int | None:
    """The descriptor of ours that a path means, by itself or by links; None for all other paths."""
    for _ in range(MOST_LINKS):
        if path in _STREAMS:
            return _STREAMS[path]
        if found := _OURS.fullmatch(path):
            return int(found[1])
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:  # no link, or nothing
            return None
    return None


def _replaceable(found: os.stat_result) -> bool:
    """Whether a new file in its place would be the same to everybody."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()


def _replaced(target: str, data: bytes, found: os.stat_result) -> bool:
    """Put a new file in the place of another; false where the folder does not let us."""
    try:
        files.write_whole(target, data)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    with contextlib.suppress(OSError):  # file systems without modes
        os.chmod(target, stat.S_IMODE(found.st_mode))
    return True


def _write_into(target: str, data: bytes, found: os.stat_result, patience_s: float) -> None:
    emptied = os.O_TRUNC if stat.S_ISREG(found.st_mode) else 0
    until = time.monotonic() + patience_s
    while True:
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | emptied)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(found.st_mode):
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, f"nobody reads this pipe, for {patience_s:g} s") from None
        time.sleep(POLL_S)
    try:
        _pass_on(descriptor, data, patience_s)
    finally:
        os.close(descriptor)


def _pass_on(descriptor: int, data: bytes, patience_s: float) -> None:
    """Write all of it, and wait for the reader no longer than it may take, whether or not the descriptor blocks."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    left = memoryview(data)
    while left:
        if not poll.poll(patience_s * 1000):
            raise OSError(errno.ETIMEDOUT, f"its reader has taken nothing for {patience_s:g} s")
        try:
            # So much a pipe that can be written to takes without blocking (pipe(7)).
            left = left[os.write(descriptor, left[: select.PIPE_BUF]) :]
        except BlockingIOError:
            time.sleep(POLL_S)

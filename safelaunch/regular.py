"""Reading files that somebody else has named or written: regular ones only, within bounds, and without waiting.

A pipe has one reader: what we take from /dev/stdin, or from a FIFO, is missing to the program that it is for.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import stat
import time
from collections.abc import Callable
from typing import Any

LOCK_S = 1.0  # for others to have written their line
MOST = 64 << 20  # bytes; a full Flight Recorder of 2000 entries is about 1 MB


def text(path: str, limit: int, *, followed: bool = True) -> str | None:
    """The beginning of a regular text file that nobody named for us to read; None for what cannot be read, and for
    pipes, devices and folders.

    Args:
        path: of the file.
        limit: characters to read at most.
        followed: whether the path may be a link.
    """
    try:
        with open(descriptor(path, followed=followed), encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return None


def read(path: str, most: int = MOST, owner: int | None = None, offset: int = 0) -> bytes:
    """The whole of a regular file, or what stands behind `offset`.

    Args:
        path: of the file.
        most: bytes. A larger file is none of those that we look for.
        owner: the user whose file it has to be, and who may not have led us there by a link; None where the place of
            the file says who wrote it.
        offset: bytes from the beginning.

    Raises:
        OSError: it cannot be read, or is none of that kind.
    """
    with open(descriptor(path, owner), "rb") as file:
        file.seek(offset)
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def document(path: str, most: int = MOST) -> dict[str, Any]:
    """The JSON object that a regular file holds; empty where it cannot be read, or is none."""
    try:
        return json_object(read(path, most))
    except OSError:
        return {}


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object that these bytes are; empty where they are none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def beginning(path: str, most: int) -> bytes:
    """The first bytes of a regular file; errors are as for `read`, but for a file that is longer."""
    with open(descriptor(path), "rb") as file:
        return file.read(most)


def descriptor(
    path: str, owner: int | None = None, *, linked: bool = False, writable: bool = False, followed: bool = True
) -> int:
    """A descriptor to read a regular file, or to write into it as well; `owner` and errors are as for `read`. `linked`
    says that the path may be a link all the same; where it is not to be `followed`, it may be none for anybody."""
    stays = os.O_NOFOLLOW if not followed or (owner is not None and not linked) else 0
    return _opened(path, (os.O_RDWR if writable else os.O_RDONLY) | stays, owner)


def inside(folder: int, name: str) -> int:
    """A descriptor to read a regular file that is no link.

    Args:
        folder: a descriptor of the one that it is in.
        name: of the file, without a folder.

    Raises:
        OSError: it cannot be read, or is none of that kind.
    """
    return _opened(name, os.O_RDONLY | os.O_NOFOLLOW, folder=folder)


def given(path: str, seconds: float = 2.0) -> int:
    """A descriptor to read what a user has named: a regular file, or a pipe into which a program writes.

    Args:
        path: of the file.
        seconds: to wait for the first byte of a pipe.

    Raises:
        OSError: it cannot be opened, is a folder, a device or a socket, or a pipe into which nobody writes.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "there is a NUL in its name", path)
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "it is no file, but a folder, a device or a socket", path)
    # To open a FIFO waits for somebody who writes.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISFIFO(mode):
        poll = select.poll()
        poll.register(opened, select.POLLIN)
        if not poll.poll(seconds * 1000):
            os.close(opened)
            raise OSError(errno.EAGAIN, f"nobody has written to this pipe for {seconds:.0f} s", path)
        os.set_blocking(opened, True)
        return opened
    return _kept(opened)


def demand_sealed(opened: int, path: str) -> None:
    """Close a file that its owner can shorten: whoever has it mapped then is killed (SIGBUS).

    Raises:
        OSError: it is one.
    """
    try:
        if fcntl.fcntl(opened, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return
    except OSError:
        pass  # no file in memory
    os.close(opened)
    raise OSError(errno.EPERM, "its owner can cut it off while it is read", path)


def _opened(path: str, flags: int, owner: int | None = None, folder: int | None = None) -> int:
    """Open a regular file; `folder` is a descriptor of the one in which it is looked for."""
    reached = opened(path, flags, lambda found: _check(path, found, owner), folder)
    return reached if flags & (os.O_RDWR | os.O_WRONLY) else _kept(reached)


def _kept(reached: int) -> int:
    """The descriptor of a file that is stored somewhere; of nothing, for one that the kernel makes as it is read, and
    perhaps takes away from those whom it is for (/proc/kmsg, tracefs): its file system has no blocks."""
    if os.fstat(reached).st_size or os.fstatvfs(reached).f_blocks:
        return reached
    os.close(reached)
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def opened(path: str, flags: int, check: Callable[[os.stat_result], None], folder: int | None = None) -> int:
    """Open a file that has been looked at, and no other that somebody puts in its place meanwhile. What is not opened
    notices nothing: to open a FIFO and close it again ends its writer, and some devices act when they are opened.

    Args:
        path: of the file.
        flags: of os.open; nothing is waited for.
        check: raises an OSError for a file that is not to be opened.
        folder: a descriptor of the one in which the path is looked for.

    Raises:
        OSError: of `check`, or it cannot be opened; root was to be led there by another user's link.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "there is a NUL in its name", path)
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    seen = _seen(path, flags & os.O_NOFOLLOW, folder)
    try:
        check(os.fstat(seen))
        try:
            return os.open(f"/proc/self/fd/{seen}", flags & ~os.O_NOFOLLOW)
        except FileNotFoundError:  # no /proc
            return os.open(path, flags, dir_fd=folder)
        except OSError as error:
            error.filename = path
            raise
    finally:
        os.close(seen)


def _seen(path: str, stays: int, folder: int | None) -> int:
    """A descriptor that looks at a file without opening it. Root is not led by a link of another user to what is not
    his, as the kernel's fs.protected_symlinks has it for folders that all may write to: he may want it shown."""
    flags = os.O_PATH | os.O_CLOEXEC
    seen = os.open(path, flags | (os.O_NOFOLLOW if os.geteuid() == 0 else stays), dir_fd=folder)
    link = os.fstat(seen)
    if stays or not stat.S_ISLNK(link.st_mode):
        return seen
    os.close(seen)
    seen = os.open(path, flags, dir_fd=folder)
    if link.st_uid in (0, os.fstat(seen).st_uid):
        return seen
    os.close(seen)
    raise PermissionError(errno.EPERM, "the link of one user leads there to what is another's", path)


def _check(path: str, found: os.stat_result, owner: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    if owner is not None and found.st_uid != owner:
        raise PermissionError(errno.EPERM, "it belongs to another user than the process", path)


def lock(descriptor: int) -> None:
    """Wait for the others that write to a file, a second at most. The lock goes with the descriptor. A file system
    without locks still appends whole lines, or nearly so."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                return
            time.sleep(0.02)
        except OSError:
            return
        else:
            return

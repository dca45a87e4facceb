"""Writing to what a user has named for a result: a file, `-`, a pipe, a device. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import time

from safelaunch import files, open_folder

STANDARD_OUTPUT = "-"
PATIENCE_S = 10.0  # for a reader to open a pipe, and to take the next bytes: a run must come to its end
POLL_S = 0.05
MOST_LINKS = 40  # path_resolution(7)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Paths that mean a descriptor of ours. Opened by name, a file behind one would be written from its beginning, over what
# the ranks have printed there.
_OURS = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_STREAMS = {STANDARD_OUTPUT: 1, "/dev/stdout": 1, "/dev/stderr": 2}
# Why a folder does not let a file in it be replaced that may be written to: not ours, read-only, or a mount by itself.
_NOT_HERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def write(path: str, data: bytes, patience_s: float | None = None, *, private: bool = False) -> None:
    """Write `data` as a shell's redirection to `path` would; `-` is the standard output.

    Links are followed, but for those of other users that lead to what is not theirs. A file of ours is replaced whole,
    by one with the same mode; one that cannot be is written into, and so is what is no regular file: a device stays
    one, and who reads a pipe gets it all. Root writes into no file of another user, and into none that has a second
    name where others could have given it one.

    Args:
        path: what the user has named.
        data: all of it.
        patience_s: seconds for a reader to come, and to take more; None for `PATIENCE_S`.
        private: whether a new file is for its owner alone.

    Raises:
        OSError: it has `path` as its name. Nobody reads a pipe, the disk is full, or it belongs to another user.
    """
    try:
        _write(path, data, PATIENCE_S if patience_s is None else patience_s, 0o600 if private else 0o666)
    except OSError as error:
        error.filename = path
        raise


def _write(path: str, data: bytes, patience_s: float, mode: int) -> None:
    descriptor = _descriptor(path)
    if descriptor is not None:
        _pass_on(descriptor, data, patience_s)
        return
    folder, name, found = _led_to(path)
    try:
        if found is None:
            files.put(folder, name, data, mode)
            return
        _demand_ours(found, folder)
        if not (_replaceable(found) and _replaced(folder, name, data, found)):
            _write_into(folder, name, data, found, patience_s)
    finally:
        os.close(folder)


def _led_to(path: str) -> tuple[int, str, os.stat_result | None]:
    """The folder to which a path leads, by links of files too, as a descriptor; the name in it, and what is there."""
    owners: set[int] = set()
    for _ in range(MOST_LINKS):
        above, name = os.path.split(path)
        folder = _made(above)
        try:
            found = os.stat(name or os.curdir, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                if owners - {0, os.geteuid(), found.st_uid}:
                    raise PermissionError(errno.EPERM, "the link of one user leads there to what is another's")
                return folder, name or os.curdir, found
            owners.add(found.st_uid)
            path = os.path.join(above, os.readlink(name, dir_fd=folder))
        except FileNotFoundError:
            if owners - {0, os.geteuid(), os.fstat(folder).st_uid}:
                os.close(folder)
                raise PermissionError(errno.EPERM, "the link of one user leads there to what is another's") from None
            return folder, name, None
        except BaseException:
            os.close(folder)
            raise
        os.close(folder)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _made(path: str) -> int:
    """A descriptor of a folder, which is made where there is none."""
    try:
        return open_folder.reached(path)
    except FileNotFoundError:
        above, name = os.path.split(path.rstrip(os.sep))
        if not name:
            raise
    folder = _made(above)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def _demand_ours(found: os.stat_result, folder: int) -> None:
    """Root may write everywhere, and is asked to by whoever owns a folder in which root works. A device is no file:
    nobody else can make one, and the terminal belongs to whoever called sudo."""
    if os.geteuid() != 0 or not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        return
    if found.st_uid != 0:
        raise PermissionError(errno.EPERM, f"it belongs to another user (uid {found.st_uid}), and root writes to it")
    around = os.fstat(folder)
    if found.st_nlink > 1 and (around.st_uid != 0 or around.st_mode & OTHERS_WRITE):
        raise PermissionError(errno.EPERM, "it is a second name of a file, in a folder of another user")


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


def _replaced(folder: int, name: str, data: bytes, found: os.stat_result) -> bool:
    """Put a new file in the place of another; false where the folder does not let us."""
    try:
        files.put(folder, name, data, stat.S_IMODE(found.st_mode), exact=True)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def _write_into(folder: int, name: str, data: bytes, found: os.stat_result, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while True:
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=folder)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(found.st_mode):
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, f"nobody reads this pipe, for {patience_s:g} s") from None
        time.sleep(POLL_S)
    try:
        opened = os.fstat(descriptor)
        _demand_ours(opened, folder)  # something else may stand there by now
        if stat.S_ISREG(opened.st_mode):
            os.ftruncate(descriptor, 0)
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

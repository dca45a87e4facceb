"""Writing documents whole or not at all, and never through somebody else's link. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from safelaunch.codec import to_json
from safelaunch.printable import Line

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ADD = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC

_held: dict[str, int] = {}


def hold(path: str, descriptor: int) -> None:
    """Reach what lies below a folder through this descriptor from now on. Whoever may write in a folder above it can
    lead its path elsewhere, but not the descriptor."""
    _held[path] = descriptor


def make(path: str) -> None:
    """Make a folder for its owner alone, and hold it.

    Raises:
        OSError: what is there already is left alone, whatever it is.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    os.mkdir(path, 0o700)
    descriptor = os.open(path, _FOLDER | os.O_NOFOLLOW)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "somebody else has put a folder in its place", path)
    hold(path, descriptor)


def write_json(path: str, value: Any) -> None:
    """Write a document whole or not at all; a reader may look at any moment."""
    write_text(path, json.dumps(to_json(value), indent=1, default=str) + "\n")


def write_lines(path: str, lines: Iterable[Line]) -> None:
    """Write what people read; arguments and errors are those of `write_text`."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_text(path: str, text: str) -> None:
    """Write a file whole or not at all, for its owner alone.

    Raises:
        OSError: it has the path as its name, and nothing is left behind.
    """
    write_whole(path, text.encode("utf-8", "backslashreplace"))


def write_whole(path: str, data: bytes) -> None:
    """Put a new file in the place of what may be there; arguments and errors are those of `write_text`."""
    parent, name = os.path.split(path)
    with _named(path), _folder(parent) as folder:
        put(folder, name, data)


def write_through(path: str, fill: Callable[[IO[bytes]], None]) -> None:
    """As `write_whole`, for what is too large to hold in memory: `fill` writes it."""
    parent, name = os.path.split(path)
    with _named(path), _folder(parent) as folder:
        _put(folder, name, fill, 0o600, exact=False)


def put(folder: int, name: str, data: bytes, mode: int = 0o600, *, exact: bool = False) -> None:
    """Put a new file in the place of what may be in a folder: of a link, the link.

    Args:
        folder: a descriptor of it.
        name: of the file.
        data: all of it.
        mode: of the file, less the process's umask where it is not `exact`.

    Raises:
        OSError: nothing is left behind.
    """
    _put(folder, name, lambda file: file.write(data), mode, exact=exact)


def _put(folder: int, name: str, fill: Callable[[IO[bytes]], object], mode: int, *, exact: bool) -> None:
    partial = f".{os.urandom(8).hex()}.part"
    descriptor = os.open(partial, _NEW, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            if exact:
                with contextlib.suppress(OSError):  # file systems without modes
                    os.fchmod(descriptor, mode)
            fill(file)
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise


def append_to(path: str) -> int:
    """A descriptor that adds to a file, which is made for its owner alone.

    Raises:
        OSError: it has the path as its name.
    """
    parent, name = os.path.split(path)
    with _named(path), _folder(parent) as folder:
        return os.open(name, _ADD, 0o600, dir_fd=folder)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors with a name: those of write(2) and close(2) have none."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    """A descriptor of a folder, which is made where there is none."""
    roots = [held for held in _held if path == held or path.startswith(held + os.sep)]
    root = max(roots, key=len, default=None)
    if root is None:
        os.makedirs(path or os.curdir, mode=0o700, exist_ok=True)
        descriptor = os.open(path or os.curdir, _FOLDER)
    else:
        descriptor = os.dup(_held[root])
    try:
        for part in path[len(root) :].split(os.sep) if root is not None else ():
            if part:
                above, descriptor = descriptor, _below(descriptor, part)
                os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _below(folder: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)

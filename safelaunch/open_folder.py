"""A folder that somebody else may own, opened once: what lies below it is reached from its descriptor.

Whoever owns a folder, or one above it, may put a link in its place at any moment. Root, which opened that path anew for
each file, would then read what is root's alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any

from safelaunch import regular

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
MOST_LINKS = 40  # on the way to one folder, as in Linux (path_resolution(7))


class OpenFolder:
    """A folder. Paths that are given to its methods begin with its own path, and only tell what is below it."""

    def __init__(self, path: str) -> None:
        """Open it.

        Args:
            path: of the folder; links may lead to it. One of another user may lead only to what is his.

        Raises:
            OSError: it is no folder, cannot be opened, or is reached through somebody else's link.
        """
        self.path = path
        self._descriptor = reached(path)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    @property
    def descriptor(self) -> int:
        """Of the folder itself; it only tells where it is (O_PATH), and is closed by `close`."""
        return self._descriptor

    @property
    def owner(self) -> int:
        """The user whose folder it is."""
        return os.fstat(self._descriptor).st_uid

    @property
    def modified(self) -> float:
        """When it was last modified, in seconds of the wall clock."""
        return os.fstat(self._descriptor).st_mtime

    def open(self, path: str) -> int:
        """A descriptor to read a regular file below: neither the file nor a folder on its way is a link.

        Raises:
            OSError: it cannot be read, or is none of that kind.
        """
        folder, name = os.path.split(self._inside(path))
        try:
            descriptor = self._folder(folder)
            try:
                return regular.inside(descriptor, name)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise OSError(errno.ELOOP, "a link leads there", path) from None
            raise

    def read(self, path: str, most: int, owner: int | None = None) -> bytes:
        """The whole of a regular file below.

        Args:
            path: of the file.
            most: bytes. A larger file is none of those that we look for.
            owner: the user whose file it has to be; None where the folder says who wrote it.

        Raises:
            OSError: as for `open`, or it is larger, or another user's.
        """
        with open(self.open(path), "rb") as file:
            if owner is not None and os.fstat(file.fileno()).st_uid != owner:
                raise PermissionError(errno.EPERM, "it belongs to another user", path)
            data = file.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data

    def document(self, path: str, most: int) -> dict[str, Any]:
        """The JSON object that a file below holds; empty where it cannot be read, or is none."""
        try:
            return regular.json_object(self.read(path, most))
        except OSError:
            return {}

    def found(self, path: str) -> os.stat_result | None:
        """What is there below, of a link the link; None for nothing."""
        folder, name = os.path.split(self._inside(path))
        try:
            descriptor = self._folder(folder)
        except OSError:
            return None
        try:
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def has(self, path: str) -> bool:
        """Whether there is a regular file below, which is no link."""
        found = self.found(path)
        return found is not None and stat.S_ISREG(found.st_mode)

    def names(self, path: str) -> list[str]:
        """Of what is in a folder below, sorted.

        Raises:
            OSError: it cannot be looked into, or is reached through a link.
        """
        folders, files = self._entries(path)
        return sorted([*folders, *files])

    def folders(self) -> list[str]:
        """The names of the folders in it that are the same user's, and no links.

        Raises:
            OSError: it cannot be looked into.
        """
        owner = self.owner
        below = [(name, self.found(os.path.join(self.path, name))) for name in self._entries(self.path)[0]]
        return [name for name, found in below if found is not None and found.st_uid == owner]

    def remove(self, path: str, made: os.stat_result | None = None) -> None:
        """Remove a file below that lies in a folder of the same owner: he could do so himself. Whatever else is there,
        stays, and nothing is told.

        Args:
            path: of the file.
            made: as it was when it was made, or read: another one stays. None for whichever it is.
        """
        folder, name = os.path.split(self._inside(path))
        try:
            descriptor = self._folder(folder)
        except OSError:
            return
        try:
            there = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            is_same = made is None or (made.st_dev, made.st_ino) == (there.st_dev, there.st_ino)
            if is_same and os.fstat(descriptor).st_uid == self.owner:
                os.unlink(name, dir_fd=descriptor)
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def text(self, path: str, limit: int) -> str:
        """The beginning of a text file below; empty for what cannot be read.

        Args:
            path: of the file.
            limit: characters to read at most.
        """
        try:
            with open(self.open(path), encoding="utf-8", errors="replace") as file:
                return file.read(limit)
        except (OSError, ValueError):  # ValueError: a path with a null byte
            return ""

    def walk(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """What lies below, as `os.walk` tells it, in the order of names. Links are among the files."""
        waiting = [self.path]
        while waiting:
            path = waiting.pop()
            try:
                folders, files = self._entries(path)
            except OSError:
                continue  # as `os.walk` does
            yield path, folders, files
            waiting += [os.path.join(path, name) for name in reversed(folders)]

    def _entries(self, path: str) -> tuple[list[str], list[str]]:
        found = self._folder(self._inside(path))
        try:
            listed = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
        finally:
            os.close(found)
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(listed) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        finally:
            os.close(listed)
        return sorted(folders), sorted(files)

    def _inside(self, path: str) -> str:
        inside = os.path.relpath(path, self.path)
        if inside.split(os.sep)[0] == os.pardir:
            raise OSError(errno.ELOOP, "it is not below that folder", path)
        return "" if inside == os.curdir else inside

    def _folder(self, inside: str) -> int:
        descriptor = os.dup(self._descriptor)
        for part in inside.split(os.sep) if inside else ():
            descriptor = _next(descriptor, part, _FOLDER | os.O_NOFOLLOW)
        return descriptor


def _next(folder: int, name: str, flags: int) -> int:
    """A descriptor of what is in a folder, in exchange for that of the folder."""
    try:
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def reached(path: str) -> int:
    """A descriptor of the folder to which a path leads, link by link: what is looked at is what is gone through.

    Args:
        path: of the folder; the empty one is the current directory.

    Raises:
        OSError: it is no folder, cannot be opened, or is reached through somebody else's link.
    """
    descriptor = os.open(os.sep if os.path.isabs(path) else os.curdir, _FOLDER)
    parts = path.split(os.sep)[::-1]
    owners: set[int] = set()
    links = 0
    try:
        while parts:
            name = parts.pop()
            if name in ("", os.curdir):
                continue
            found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            try:
                target = os.readlink("", dir_fd=found)
            except OSError:  # no link
                os.close(descriptor)
                descriptor = found
                continue
            owners.add(os.fstat(found).st_uid)
            os.close(found)
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if os.path.isabs(target):
                os.close(descriptor)
                descriptor = os.open(os.sep, _FOLDER)
            parts += target.split(os.sep)[::-1]
        if owners - {0, os.geteuid(), os.fstat(descriptor).st_uid}:
            raise PermissionError(errno.EPERM, "the link of one user leads there to what is another's", path)
        return os.open(os.curdir, _FOLDER, dir_fd=descriptor)  # a file is none
    finally:
        os.close(descriptor)


def demand_not_led(path: str, opened: int) -> None:
    """Refuse a file to which another user has led us: what he may not read himself, we might show to him.

    Args:
        path: by which it was opened.
        opened: its descriptor.

    Raises:
        OSError: a link of another user leads to what is not his, or another file is there by now.
    """
    above, name = os.path.split(path)
    found = os.fstat(opened)
    folder = reached(above)
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)
    if stat.S_ISLNK(there.st_mode):
        if there.st_uid not in (0, os.geteuid(), found.st_uid):
            raise PermissionError(errno.EPERM, "the link of one user leads there to what is another's", path)
    elif (there.st_dev, there.st_ino) != (found.st_dev, found.st_ino):
        raise OSError(errno.EBUSY, "another file has taken its place", path)

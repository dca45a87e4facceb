"""Files of the machine below a root directory: `/` in earnest, a temporary directory in tests."""

from __future__ import annotations

import errno
import os

MOST = 16 << 20  # bytes of a file of /proc or /sys: some are as large as a process likes


class Root:
    """Reads absolute paths below a root directory. Methods raise OSError as the plain calls do."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    @property
    def prefix(self) -> str:
        return self._root

    def read(self, path: str, most: int = MOST) -> str:
        """The text of a file, up to a number of bytes; bytes that are not UTF-8 are replaced."""
        parts = []
        with open(self._root + path, "rb", buffering=0) as file:
            # As `procfs.content`, which this file has to do without (`storage_probe`).
            while most > 0 and (part := file.read(min(most, 1 << 16))):
                parts.append(part)
                most -= len(part)
        return b"".join(parts).decode("utf-8", "replace")

    def text(self, path: str) -> str:
        """The text of a file such as those of sysfs, without white space around it; empty where it cannot be read."""
        try:
            return self.read(path).strip()
        except OSError:
            return ""

    def read_available(self, path: str) -> str:
        """What a file such as /dev/kmsg holds now: its end would be waited for, and it hands out a record at a time."""
        parts = []
        descriptor = os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                try:
                    part = os.read(descriptor, 1 << 16)
                except BrokenPipeError:  # records were overwritten before they were read: go on with the next
                    continue
                except BlockingIOError:
                    break
                if not part:
                    break
                parts.append(part)
        finally:
            os.close(descriptor)
        return b"".join(parts).decode("utf-8", "replace")

    def realpath(self, path: str) -> str:
        """The path with its symbolic links resolved, below the root."""
        found = os.path.realpath(self._root + path)
        return found.removeprefix(os.path.realpath(self._root)) if self._root else found

    def readlink(self, path: str) -> str:
        return os.readlink(self._root + path)

    def names(self, path: str) -> list[str]:
        """The names in a directory, unordered; none where there is no such directory."""
        try:
            return os.listdir(self._root + path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def first_name(self, path: str) -> str:
        """Some name in a directory, empty where there is none: a whole listing may take long."""
        with os.scandir(self._root + path) as entries:
            return next((entry.name for entry in entries), "")

    def exists(self, path: str) -> bool:
        return os.path.exists(self._root + path)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(self._root + path)

    def try_write(self, path: str) -> None:
        """Write into a directory, into a file that never gets a name. Raises OSError where that is not possible."""
        try:
            descriptor = os.open(self._root + path, os.O_TMPFILE | os.O_WRONLY, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
                raise
        else:
            try:
                os.write(descriptor, bytes(4096))
            finally:
                os.close(descriptor)
            return
        # Not every file system makes files without a name (NFS, Lustre, overlayfs before Linux 6.1).
        if not os.access(self._root + path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(self._root + path)

    def statvfs(self, path: str) -> os.statvfs_result:
        return os.statvfs(self._root + path)

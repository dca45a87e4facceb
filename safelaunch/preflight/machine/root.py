"""Files of the machine below a root directory: `/` in earnest, a temporary directory in tests."""

from __future__ import annotations

import os
from pathlib import Path


class Root:
    """Reads absolute paths below a root directory. Methods raise OSError as the plain calls do."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str) -> str:
        """The whole text of a file; bytes that are not UTF-8 are replaced."""
        return Path(self._root + path).read_text(encoding="utf-8", errors="replace")

    def readlink(self, path: str) -> str:
        return os.readlink(self._root + path)

    def names(self, path: str) -> list[str]:
        """The names in a directory, unordered; none where there is no such directory."""
        try:
            return os.listdir(self._root + path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self._root + path)

    def statvfs(self, path: str) -> os.statvfs_result:
        return os.statvfs(self._root + path)

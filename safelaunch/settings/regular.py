"""Read the beginning of a text file that nobody named for us to read."""

from __future__ import annotations

import os
import stat


def text(path: str, limit: int) -> str | None:
    """The beginning of a regular file; None for what cannot be read, and for pipes, devices and folders.

    A pipe has one reader: what we take from /dev/stdin, or from a FIFO, is missing to the program that it is for.

    Args:
        path: of the file.
        limit: characters to read at most.
    """
    try:
        # Before the open: to open a FIFO and close it again ends its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return None

"""Standard streams that whoever started us had closed. Standard library only."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")
_closed: list[int] = []


def take_closed() -> None:
    """Open the null device where descriptor 0, 1 or 2 is closed, before anything else is opened: a pipe or a file of
    ours would get that number, and everything below us would take it for its stream."""
    for descriptor, name in enumerate(_NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(null, True)
            _closed.append(null)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))


def closed() -> tuple[int, ...]:
    """The descriptors that were closed. They are so for the ranks, as under torchrun."""
    return tuple(_closed)

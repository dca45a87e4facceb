"""Runs in: the fork server. Python's heap as forked ranks are to find it.

A process that is forked has a copy of its own of each page of 4 KiB that it writes into. Imports leave thousands of
free places between what they keep, and Python puts new objects there first: so 80 KB of them may cost a rank 800 KB.
"""

from __future__ import annotations

from typing import Any, List

ALIGNED = 16  # pymalloc's sizes are multiples of it (obmalloc.c, ALIGNMENT)
LARGEST = 512  # what is larger comes from C's malloc (SMALL_REQUEST_THRESHOLD)
ROW = 8192  # bytes in a row, as only a new pool has them (POOL_SIZE: 16 KiB since Python 3.10)
MOST = 1 << 20  # bytes of one size: another allocator (PYTHONMALLOC) may never put objects side by side
OF_BYTES = b"".__sizeof__()  # what an object of `bytes` has around its text


def fill() -> List[Any]:
    """Fill the free places of all sizes. Returns what fills them, to be kept."""
    fillers: List[Any] = []
    for size in range(3 * ALIGNED, LARGEST + 1, ALIGNED):
        in_a_row, before = 0, 0
        for _ in range(MOST // size):
            filler = bytes(size - OF_BYTES)
            fillers.append(filler)
            in_a_row = in_a_row + 1 if id(filler) == before + size else 0
            before = id(filler)
            if in_a_row * size > ROW:
                break
    return fillers

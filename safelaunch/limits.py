"""Limits of time and memory for reading what others have written: the answer comes, and names the limit.

What is written in C and never looks up (the unpickler, a decompressor) is read in child processes, or in small pieces;
everything else is ended by these.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType

# For an input of up to 1 MB the answer comes within 10 s and 512 MiB, the start of Python and the printing included.
SECONDS, SECONDS_PER_MIB = 7.0, 2.0
ROOM, ROOM_PER_MIB = 384 << 20, 64 << 20  # of address space beyond what is in use: two threads take 150 MiB of it
SECONDS_EACH = 0.25  # of many inputs; one of a usual size takes some milliseconds
AGAIN_S = 1.0
AT_LEAST_S = 0.01  # 0 would stop the clock
MOST_FILES = 100_000  # that are looked at for their sizes


class LimitError(BaseException):
    """Something took longer, or more memory, than what it reads is worth. The message names the limit.

    No `Exception`: it comes in the middle of anything, and what reads on after a torn line would read on after it.
    """


class SharedClock:
    """The time that several inputs may take together: each adds what its size is worth, and takes what it needs."""

    def __init__(self) -> None:
        self._left = SECONDS
        self._began = 0.0

    def begin(self, size: int) -> float:
        """The seconds that there are for an input of so many bytes, which begins now."""
        self._left += SECONDS_EACH + SECONDS_PER_MIB * size / (1 << 20)
        self._began = time.monotonic()
        return max(self._left, SECONDS_EACH)

    def end(self) -> None:
        """It has been read."""
        self._left -= time.monotonic() - self._began


@contextlib.contextmanager
def limited(size: int, clock: SharedClock | None = None) -> Iterator[None]:
    """Bound what happens inside by an amount of time and memory that goes with the size of the input.

    Args:
        size: bytes of the input.
        clock: that of all inputs of a command, where there are several.

    Raises:
        LimitError: the time or the memory was not enough. What was inside may have left child processes, which have
            limits of their own.
    """
    mib = -(-size >> 20) if size > 1 << 20 else 1
    seconds = SECONDS + SECONDS_PER_MIB * mib
    if clock is not None:
        seconds = min(seconds, clock.begin(size))
    try:
        with _memory(ROOM + ROOM_PER_MIB * mib) as room, _time(seconds):
            yield
    except MemoryError:
        raise LimitError(f"it takes more than {room >> 20} MiB of memory, the limit for {mib} MiB of input") from None
    finally:
        if clock is not None:
            clock.end()


@contextlib.contextmanager
def _time(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGALRM) is None:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise LimitError(f"it takes longer than {seconds:.2g} s, the limit for an input of its size")

    before = signal.signal(signal.SIGALRM, ring)
    # It rings again: the first time may come in the middle of what ends by itself, such as a weak reference.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """The clock stands still: somebody else is waited for, who writes to a pipe."""
    left, again = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, again)


@contextlib.contextmanager
def share(part: float) -> Iterator[None]:
    """What is inside has a part of the time that is left, so that what follows it is read as well.

    Raises:
        LimitError: that part was not enough.
    """
    left, again = signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    if left:
        signal.setitimer(signal.ITIMER_REAL, left * part, again)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), AT_LEAST_S), again)


def longer(size: int) -> None:
    """What is read has so many bytes more than was known when the clock was set."""
    left, again = signal.getitimer(signal.ITIMER_REAL)
    if left:
        signal.setitimer(signal.ITIMER_REAL, left + SECONDS_PER_MIB * size / (1 << 20), again)


@contextlib.contextmanager
def _memory(room: int) -> Iterator[int]:
    try:
        before = resource.getrlimit(resource.RLIMIT_AS)
        take(room)
    except (OSError, ValueError):
        yield room
        return
    try:
        yield room
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def take(room: int) -> None:
    """Let this process have so many bytes of address space more than it has now, or less where its user says so.

    Raises:
        OSError, ValueError: there is no /proc, or the limit cannot be set.
    """
    wanted = in_use() + room
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))


def in_use() -> int:
    """The bytes of address space that this process has.

    Raises:
        OSError: there is no /proc.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


SPARSE = 1 << 20  # bytes that all files together may have on no block of their disk, such as those that an inode holds


def size_of(paths: Iterable[str], depth: int) -> int:
    """The bytes of the files at and below paths, so many folders deep."""
    total = count = 0
    held = SPARSE
    for path in paths:
        files = _below(path, depth) if os.path.isdir(path) else iter((path,))
        for file in files:
            count += 1
            with contextlib.suppress(OSError, ValueError):
                found = os.stat(file)
                stored = min(found.st_size, found.st_blocks * 512)
                more = min(found.st_size - stored, held)
                held -= more
                total += stored + more
            if count > MOST_FILES:
                return total
    return total


def _below(path: str, depth: int) -> Iterator[str]:
    deepest = path.rstrip(os.sep).count(os.sep) + depth
    for folder, below, names in os.walk(path):
        if folder.count(os.sep) >= deepest:
            below.clear()
        yield from (os.path.join(folder, name) for name in names)

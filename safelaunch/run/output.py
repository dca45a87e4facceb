"""How a run speaks: a thread writes, so that nothing that acts waits for somebody who reads."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Iterable
from typing import TextIO

from safelaunch.printable import Line

KEPT_BYTES = 1 << 20  # of what nobody reads; a verdict takes about 1 KB
# At the end nothing is left to act on, but whoever started us waits: so long for a reader that takes nothing. What it
# misses lies in the run directory.
STALL_S, INTERRUPTED_STALL_S = 5.0, 1.0
WHOLE = select.PIPE_BUF  # a pipe that ranks write to as well takes up to this size in one piece (pipe(7))


class Output:
    """Lines for one stream, in the order in which it comes.

    Where the reader stalls, up to `KEPT_BYTES` wait for it; beyond that the oldest are left out, and their number is
    told. A reader that is gone is no reason to fail.

    Args:
        stream: where it goes; one without a descriptor is written to directly.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, bool]] = deque()  # and whether it begins a line of its own
        self._size = 0  # of what waits
        self._left_out = 0
        self._taken = 0  # bytes that the reader's end has taken
        self._busy = False
        self._thread: threading.Thread | None = None
        try:
            self._descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            self._descriptor = -1

    def write(self, shown: Iterable[Line]) -> None:
        """Have lines written, together; returns at once."""
        self._write(shown, anew=False)

    def write_anew(self, shown: Iterable[Line]) -> None:
        """The same, behind whatever others have written there, also where that is half a line."""
        self._write(shown, anew=True)

    def _write(self, shown: Iterable[Line], *, anew: bool) -> None:
        text = "".join(f"{one}\n" for one in shown)
        if self._descriptor < 0:
            self._stream.write(text)
            return
        data = text.encode(self._stream.encoding or "utf-8", "backslashreplace")
        with self._changed:
            self._waiting.append((data, anew))
            self._size += len(data)
            while self._size > KEPT_BYTES and len(self._waiting) > 1:
                self._size -= len(self._waiting.popleft()[0])
                self._left_out += 1
            if self._thread is not None or self._start():
                self._changed.notify_all()
                return
        self._pass_on()

    def finish(self, stall_s: float = STALL_S) -> bool:
        """Wait until all is written. False where the reader has taken nothing for `stall_s` seconds."""
        with self._changed:
            while self._waiting or self._busy:
                taken = self._taken
                if not self._changed.wait(stall_s) and self._taken == taken:
                    return False
        return True

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="output", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of processes: better late than never
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
            self._pass_on()

    def _pass_on(self) -> None:
        with self._changed:
            if not self._waiting:
                return  # another thread has passed it on
            data, self._busy = self._next(), True
        try:
            self._send(data)
        except OSError:
            pass  # nobody will read it
        with self._changed:
            self._busy = False
            self._changed.notify_all()

    def _next(self) -> bytes:
        data, anew = self._waiting.popleft()
        self._size -= len(data)
        if anew and _may_be_in_a_line(self._descriptor):
            data = b"\n" + data
        count, self._left_out = self._left_out, 0
        return b"safelaunch: %d messages left out: nobody read them\n" % count + data if count else data

    def _send(self, data: bytes) -> None:
        begin = 0
        while begin < len(data):
            end = len(data)
            if end - begin > WHOLE:
                end = data.rfind(b"\n", begin, begin + WHOLE) + 1 or begin + WHOLE
            try:
                count = os.write(self._descriptor, data[begin:end])
            except BlockingIOError:  # somebody who shares it has made it so
                select.select([], [self._descriptor], [])
                continue
            begin += count
            with self._changed:
                self._taken += count
                self._changed.notify_all()


def _may_be_in_a_line(descriptor: int) -> bool:
    """Whether what stands last behind a descriptor may be half a line. Only a file can be asked: what has gone into a
    pipe or to a terminal nobody sees again, and an empty line there does less harm than a glued one."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return True
        if not found.st_size:
            return False
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(own, 1, found.st_size - 1) != b"\n"
        finally:
            os.close(own)
    except OSError:
        return True

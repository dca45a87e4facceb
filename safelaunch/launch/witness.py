"""Whether a signal was sent to this process alone, or to all around it as well: a process that is there to see.

A command below us is in our process group, as it would be in that of a shell. What a terminal sends (Ctrl-C), and what
is sent to the group or to each process of a job, reaches it without us; what was sent to our pid alone does not. A
signal does not say which of these it was. So a child that does nothing else gets them as well, and tells.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable

from safelaunch import procfs

WAIT_S = 0.05  # a signal for a group is there for all of it within microseconds; its telling needs a time slice


class Witness:
    """Forks the child; to be made while this process has one thread.

    Args:
        signals: which are of interest.
    """

    def __init__(self, signals: Iterable[int]) -> None:
        self._seen: list[int] = []
        self._reader, writer = os.pipe()
        parent = os.getpid()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # none may come before it is ready
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                _main(parent, writer, set(signals))
            os._exit(0)
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.set_blocking(self._reader, False)

    def saw(self, signum: int) -> bool:
        """Whether this signal, which has come here, was sent to others as well. It takes up to `WAIT_S` seconds."""
        until = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(BlockingIOError):
                self._seen += os.read(self._reader, 4096)
            if signum in self._seen:
                self._seen.remove(signum)
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            poll = select.poll()  # select() knows no descriptor above 1023
            poll.register(self._reader, select.POLLIN)
            poll.poll(left * 1000)

    def dismiss(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _main(parent: int, writer: int, signals: set[int]) -> None:
    procfs.die_with_parent()
    if os.getppid() != parent:
        return
    signal.set_wakeup_fd(-1)
    for signum in signals:  # one that is ignored is never seen
        signal.signal(signum, signal.SIG_DFL)
    keep = os.dup(writer)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    if keep != 3:
        os.dup2(keep, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 20 else 1 << 16)
    while True:
        os.write(3, bytes([signal.sigwait(signals)]))

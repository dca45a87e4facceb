"""Work on what others have made, in a process of its own with limits: it can hold or fill that one alone.

Whoever attaches looks at processes of others, as root perhaps, and much of it happens in C, or in the kernel, where
nothing of Python's can end it: a page of a process may lie on a file system that never answers.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable

from safelaunch import procfs
from safelaunch.codes import EXIT_USAGE
from safelaunch.model import SafelaunchError

LEAVES_S = 1.0  # for the process to end once its work is done; one that the kernel holds is left to it


REMEDY = "look at its ranks one by one with `py-spy dump --pid`, and at the file systems that they use"


def run(work: Callable[[], int], seconds: float, room: int, remedy: str = REMEDY) -> int:
    """Do some work in a fork of this process, which has no threads yet; returns its exit code.

    Args:
        work: prints what is to be told, and gives the exit code. What it raises is told by that process, as here.
        seconds: on the wall, for all of it.
        room: bytes of memory beyond what this process has, as RLIMIT_DATA counts.
        remedy: what to do where that is not enough.

    Raises:
        SafelaunchError: SL008, where the limits were not enough.
    """
    ended, told = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(ended)
        _limit(parent, room)
        try:
            code = work()
            sys.stdout.flush()
        except MemoryError:
            raise over_limit(f"more than {room >> 20} MiB of memory", remedy) from None
        os.write(told, bytes([code]))
        return code
    os.close(told)
    try:
        return _code(_Child(pid), ended, seconds, remedy)
    finally:
        os.close(ended)


def _limit(parent: int, room: int) -> None:
    """End with the parent, and take no more memory than that."""
    procfs.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (room if most < 0 else min(room, most), most))


class _Child:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None

    def status(self, seconds: float = 0.0) -> int | None:
        """How it ended; None where it has not within so long."""
        until = time.monotonic() + seconds
        while self._status is None:
            found, status = os.waitpid(self._pid, os.WNOHANG)
            if found:
                self._status = status
            elif time.monotonic() > until:
                break
            else:
                time.sleep(0.005)
        return self._status

    def end(self) -> None:
        """Kill it, unless it has ended."""
        if self.status() is None:
            os.kill(self._pid, signal.SIGKILL)
            self.status(LEAVES_S)


def _code(child: _Child, ended: int, seconds: float, remedy: str) -> int:
    try:
        # It says its exit code, or has ended without a word.
        ready, _, _ = select.select([ended], [], [], seconds)
        said = os.read(ended, 1) if ready else b""
        status = child.status(LEAVES_S) if ready else None
    finally:
        child.end()
    if said:
        return said[0]
    if not ready:
        raise over_limit(f"more than {seconds:.0f} s", remedy)
    if status is None or os.WIFSIGNALED(status):
        raise over_limit("more than it may: a signal ended it, perhaps that of the kernel for want of memory", remedy)
    return os.WEXITSTATUS(status)


def over_limit(what: str, remedy: str = REMEDY) -> SafelaunchError:
    """To look at a job took more time or memory than it may.

    `safelaunch attach` and `safelaunch dump` work in a process of their own, with 2 GiB of memory and two minutes
    beside `--wait`; `safelaunch top --plain` likewise, with one minute. A process that is looked at may make it take
    more: it shows stacks and records without end, or lies on a file system that does not answer. Nothing of it was
    changed, and what had been written of the evidence stays. `safelaunch trace` puts together what the ranks have left
    in such a process, too, with more of both: a trace may be large.

    What to do: look at the ranks one by one (`py-spy dump --pid PID`), and at the file systems that they use. Of a
    trace, ask for fewer steps, or for some of the ranks.
    """
    return SafelaunchError("SL008", f"to look at this job took {what}", remedy, exit_code=EXIT_USAGE)

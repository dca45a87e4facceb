"""A rank that waits for what a process of its own was to send, and that process has ended."""

from __future__ import annotations

import signal

from safelaunch.diagnosis.stall import loader
from safelaunch.diagnosis.stall.activity import FOR_ROOM, library_wait
from safelaunch.diagnosis.stall.look import Look
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.stall.syscalls import POLLS, READS, RECEIVES
from safelaunch.model import Child, Kernel

BETWEEN_PROCESSES = ("pipe:", "socket:")
EMPTIES = "see why that process ended, if it was the one that empties the queue; `put(timeout=...)` raises instead"
REMEDY = "see why that process ended; close this side's copy of its end, so that a read fails, or use a timeout"


def waits_for_the_dead(look: Look) -> Stall | None:
    """Its process at the other end of a pipe has ended, and nobody has asked after it."""
    kernel, dead = look.kernel, [child for child in look.facts.children if child.kernel.state == "Z"]
    if kernel is None or not dead or any(map(loader.is_worker, dead)):
        return None
    if library_wait(look.stack) == FOR_ROOM:
        what = f"{look.does}, and its process {dead[-1].name} (pid {dead[-1].pid}) {_how(dead[-1])}"
        return Stall("SL301", what, look.place, EMPTIES, (), look.sources)
    if not _waits_at_a_pipe(kernel):
        return None
    what = f"waits at a pipe for its process {_named(dead[-1])}"
    because = tuple(f"its process {_named(child)}" for child in dead[:-1])
    return Stall("SL301", what, look.place, REMEDY, because, look.sources)


def _waits_at_a_pipe(kernel: Kernel) -> bool:
    """Whether a thread reads where no living process that is known has the other end."""
    peer = kernel.peer
    nobody = peer is None or not peer.processes
    if kernel.syscall in POLLS:
        return nobody
    return kernel.syscall in READS | RECEIVES and kernel.file.startswith(BETWEEN_PROCESSES) and nobody


def _named(child: Child) -> str:
    """`python (pid 12), which was killed by SIGKILL`."""
    return f"{child.name} (pid {child.pid}), which {_how(child)}"


def _how(child: Child) -> str:
    status = child.status
    if status is None:
        return "has ended"
    return f"was killed by {_signal(status & 127)}" if status & 127 else f"has exited with {status >> 8 & 255}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

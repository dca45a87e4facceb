"""Processes below a rank for which it waits."""

from __future__ import annotations

from safelaunch.diagnosis.stall.activity import in_call
from safelaunch.diagnosis.stall.syscalls import SLEEPS, WRITES
from safelaunch.model import Child, RankFacts

UNREAD = "read what the process writes while it runs (`communicate()`), or let it write to a file"


def own_process(facts: RankFacts, child: Child) -> str:
    """What a process of a rank does, for which the rank waits."""
    does = "writes into a pipe that the rank itself has to read" if is_unread(facts, child) else _of_child(child)
    return f"its process {child.name} (pid {child.pid}) {does}"


def is_unread(facts: RankFacts, child: Child) -> bool:
    """Whether a process is held by a pipe that is full, of which the rank itself has the other end."""
    peer = child.kernel.peer
    return child.kernel.syscall in WRITES and peer is not None and facts.pid in peer.pids


def _of_child(child: Child) -> str:
    kernel = child.kernel
    if kernel.state == "Z":
        return "has ended, and nobody has waited for it"
    if kernel.state == "R":
        return "computes"
    if kernel.syscall in SLEEPS:
        return "sleeps"
    return f"is in {in_call(kernel)}"

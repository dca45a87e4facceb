"""Stacks with native frames, of a rank in a hang that Python frames do not explain.

py-spy stops the rank for this (0.1 to 0.9 s measured, 1 to 3 s on a node with three times more work than cores) and may
cut a system call short, so it comes last. It hangs on a process that is stopped or that the kernel holds: those are not
touched.
"""

from __future__ import annotations

import signal
import time

from safelaunch import black_box_reader, procfs
from safelaunch.evidence import proc_tasks, spy
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "native"
SECONDS = 2.0
STALE_S = 2.0
LOOKS, APART_S = 3, 0.01
UNSEEN = {"futex", "ioctl", "sched_yield", ""}
EXPLAINED = "Python frames explain it"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:
    """`threads` as py-spy's JSON, native frames among them, innermost first."""
    begun = time.monotonic()
    reason = _excuse(incident, worker)
    if reason:
        return Evidence(SOURCE, worker.rank, unavailable=reason)
    dump = spy.Dump(worker.pid, "--native")
    threads, reason = dump.result(min(deadline, begun + SECONDS))
    elapsed = time.monotonic() - begun
    if dump.late and (process := procfs.read(worker.pid)) and process.start == worker.start:
        # The stop that py-spy has sent may still be on its way: without py-spy nobody would take it back.
        procfs.send(process, signal.SIGCONT)
    if threads is None:
        return Evidence(SOURCE, worker.rank, unavailable=reason, elapsed_s=elapsed)
    return Evidence(SOURCE, worker.rank, {"threads": threads}, elapsed_s=elapsed)


def _excuse(incident: Incident, worker: WorkerProcess) -> str:
    """Why the rank is left alone."""
    if incident.kind != "hang":
        return EXPLAINED
    process = procfs.read(worker.pid)
    if process is None or process.start != worker.start or process.state in "ZX":
        return "the process had ended"
    if incident.ranks and worker.rank not in incident.ranks:
        return EXPLAINED
    if not _stale(worker) and not _spins(worker.pid) and not (incident.ranks and _waits_unseen(worker.pid)):
        return EXPLAINED
    held = {proc_tasks.state(worker.pid, tid) for tid in proc_tasks.threads(worker.pid)} & set("TtD")
    return f"a thread of the rank is in state {min(held)}, and py-spy would hang" if held else ""


def _waits_unseen(pid: int) -> bool:
    """Whether the main thread waits in a call that does not say what for: a lock, or a device."""
    return proc_tasks.look(pid, memory=False)["syscall"] in UNSEEN


def _spins(pid: int) -> bool:
    """Whether the main thread runs whenever we look: one that only polls is asleep most of the time."""
    for _ in range(LOOKS):
        if proc_tasks.state(pid, pid) != "R":
            return False
        time.sleep(APART_S)
    return True


def _stale(worker: WorkerProcess) -> bool:
    """Whether the interpreter has stopped to beat."""
    slot = black_box_reader.read(worker.black_box, worker.local_rank) if worker.black_box else None
    if slot is None or slot.pid != worker.pid or not slot.pulse.beat:
        return False
    age: float = time.monotonic() - slot.pulse.beat
    return age > STALE_S

"""Python stacks of a living rank and of the Python processes below it, without stopping them.

py-spy's `--nonblocking` reads memory only: it interrupts no system call, and it returns when the rank is stopped or
in uninterruptible sleep, where the blocking mode hangs. Where py-spy may not, the rank's own handler writes the
stacks: it runs in C, also while something holds the interpreter, but its signal may cut a system call short.
"""

from __future__ import annotations

import functools
import os
import threading
import time

from safelaunch import black_box, black_box_reader, procfs, regular
from safelaunch.evidence import proc_tasks, spy
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "stack"
CHILDREN = 8
SIGNAL_S, POLL_S = 0.5, 0.01
RESERVE_S = 0.1  # what comes after us is cheap and must not be lost
LIMIT = 256 * 1024
CANNOT = {"T": "is stopped", "t": "is stopped by a tracer", "D": "is held by the kernel", "Z": "has ended"}


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:
    """`threads` as py-spy's JSON, frames innermost first, and `children`, the same by pid; or `faulthandler`, text,
    with py-spy's complaint as `py_spy`."""
    begun, deadline = time.monotonic(), deadline - RESERVE_S
    dump = spy.Dump(worker.pid, "--nonblocking")
    # At a crash the ranks are about to end, and a rank inside a collective does not wait for its loader workers: what
    # these do is not worth the time.
    shown = _pythons(worker.pid) if incident.kind == "hang" and not _waits(worker) else []
    below = {str(child.pid): spy.Dump(child.pid, "--nonblocking") for child in shown}
    threads, reason = dump.result(deadline)
    data: dict[str, object] = {"threads": threads or []}
    text = ""
    if threads is None and dump.late:
        data["py_spy"] = reason  # on a busy machine; a signal to a rank that is only slow could cut its call short
    elif threads is None:
        text, why_not = _ask(worker, min(deadline, time.monotonic() + SIGNAL_S))
        reason = "; ".join(filter(None, (reason, why_not)))
        data |= {"py_spy": reason} | ({"faulthandler": text} if text else {})
    children = {pid: found for pid, dump in below.items() if (found := dump.result(deadline)[0])}
    elapsed = time.monotonic() - begun
    if not threads and not text and not children:
        return Evidence(SOURCE, worker.rank, unavailable=reason or "no thread runs Python", elapsed_s=elapsed)
    return Evidence(SOURCE, worker.rank, {**data, "children": children}, elapsed_s=elapsed)


def _waits(worker: WorkerProcess) -> bool:
    """Whether the rank itself says that it is inside a collective."""
    if not worker.black_box:
        return False
    try:
        slot = black_box_reader.read(worker.black_box, worker.local_rank, worker.owner)
    except OSError:  # the stacks are worth having without it
        return False
    return slot is not None and slot.pid == worker.pid and slot.pulse.waiting and not slot.pulse.phases


def _pythons(pid: int) -> list[procfs.Process]:
    """The Python processes below a rank, such as loader workers (torch names them pt_data_worker)."""
    found = []
    for child in sorted(proc_tasks.below(pid), key=lambda child: child.pid):
        # /proc/PID/cmdline is the process's own memory: a process that the kernel holds may make us wait for it.
        words = proc_tasks.text(child.pid, "comm") + (
            "" if child.state in "DZ" else proc_tasks.text(child.pid, "cmdline")
        )
        if child.state != "Z" and ("python" in words or "pt_data_worker" in words):
            found.append(child)
    return found[:CHILDREN]


def _ask(worker: WorkerProcess, until: float) -> tuple[str, str]:
    """The stacks that the rank's own handler writes, or the reason why not."""
    if not worker.rank_dir:
        return "", ""  # a rank that we did not start: it has no such handler, and the signal may end it
    process = procfs.read(worker.pid)
    if process is None or process.start != worker.start:
        return "", ""
    if process.state in CANNOT:
        return "", f"the rank {CANNOT[process.state]} and cannot answer a signal"
    if not procfs.catches(worker.pid, black_box.STACK_SIGNAL):
        return "", "the rank has no handler that writes them"
    if not _lock_of(worker.pid).acquire(timeout=max(0.0, until - time.monotonic())):
        return "", "another look at the rank took too long"
    try:
        return _answered(process, os.path.join(worker.rank_dir, f"stacks-{worker.pid}.txt"), until)
    finally:
        _lock_of(worker.pid).release()


@functools.cache
def _lock_of(pid: int) -> threading.Lock:  # noqa: ARG001
    """Of two looks at once, one of them for another node, each would read what both have asked for."""
    return threading.Lock()


def _answered(process: procfs.Process, path: str, until: float) -> tuple[str, str]:
    before = size = _size(path)
    if not procfs.send(process, black_box.STACK_SIGNAL):
        return "", "the rank cannot be sent a signal"
    while time.monotonic() + POLL_S < until:
        time.sleep(POLL_S)
        last, size = size, _size(path)
        if size == last > before:
            break
    if size == before:
        return "", "the rank's handler did not write them in time"
    with open(regular.descriptor(path), "rb") as file:
        file.seek(before)
        return file.read(LIMIT).decode("utf-8", "replace"), ""


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

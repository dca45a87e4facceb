"""What the kernel says of a living rank: /proc/PID/{stat,wchan,status}. Microseconds, and nothing is disturbed."""

from __future__ import annotations

import os

from safelaunch import procfs
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "kernel"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """State letter, kernel wait channel, and whether a tracer (a debugger) is attached."""
    process = procfs.read(worker.pid)
    if process is None or process.start != worker.start or process.state in "ZX":
        return Evidence(SOURCE, worker.rank, unavailable="the process had ended")
    data: dict[str, object] = {"state": process.state, "wchan": _text(worker.pid, "wchan")}
    for line in _text(worker.pid, "status").splitlines():
        if line.startswith(("TracerPid:", "Threads:", "VmRSS:", "VmHWM:")):
            name, _, value = line.partition(":")
            data[name] = value.strip()
    return Evidence(SOURCE, worker.rank, data)


def _text(pid: int, name: str) -> str:
    try:
        with open(os.path.join("/proc", str(pid), name), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""

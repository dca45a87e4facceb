"""How a rank has ended whose parent alone was told: by what it has left."""

from __future__ import annotations

import contextlib
import re
import signal
import time

from safelaunch import black_box_reader
from safelaunch.evidence import errors, faults
from safelaunch.model import Incident, WorkerProcess

# What faulthandler writes first (Modules/faulthandler.c).
FATAL = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}

# The launcher ends ranks so where one has failed, and at the end of servers: alone they say nothing.
ASKED_FOR = {
    *(-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGKILL),
    *(128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGKILL),
}


def inferred(worker: WorkerProcess) -> int | None:
    """Its exit code, as `subprocess` has it; None where nothing tells."""
    fault = faults.collect(Incident("exit", 0, (), time.monotonic()), worker, 0.0)
    said = re.match(r"Fatal Python error: ([^\n]+)", (fault.data or {}).get("text", ""))
    if said is not None and said[1] in FATAL:
        return -FATAL[said[1]]
    slot = None
    with contextlib.suppress(OSError):
        slot = black_box_reader.read(worker.black_box, worker.local_rank)
    if slot is not None and slot.pid == worker.pid:
        if slot.exit_call is not None and slot.exit_call[3].lstrip("-").isdecimal():
            return int(slot.exit_call[3]) & 0xFF
        if slot.shut_down is not None:
            return 1 if slot.raised or slot.exit_call is not None else 0
    return 1 if errors.paths(worker) else None

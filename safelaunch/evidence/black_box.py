"""The latest collectives of a rank and the line that ended it, from the mapped slot that outlives the rank."""

from __future__ import annotations

import glob
import os

from safelaunch import black_box
from safelaunch.codec import to_json
from safelaunch.model import Collective, Evidence, ExitCall, Incident, Location, WorkerProcess

SOURCE = "collectives"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`collectives`, oldest first, and `exit_call`, the line that called `sys.exit` or `os._exit`, and `shut_down`."""
    if not worker.black_box:
        return Evidence(SOURCE, worker.rank, unavailable="there is no black box in this run")
    slot = black_box.read(worker.black_box, worker.local_rank)
    if slot is None or slot.pid != worker.pid:
        return Evidence(SOURCE, worker.rank, unavailable="the rank did not open its black box")
    collectives = [
        Collective(
            op=entry.op,
            group=entry.group,
            seq=entry.seq,
            numel=entry.numel,
            dtype=entry.dtype,
            done=entry.done,
            t=entry.t,
            group_size=entry.group_size,
            location=Location(entry.file, entry.line, entry.function),
        )
        for entry in slot.entries
    ]
    called = ExitCall(Location(*slot.exit_call[:3]), slot.exit_call[3]) if slot.exit_call else None
    data = {
        "collectives": to_json(collectives),
        "exit_call": to_json(called),
        "shut_down": slot.shut_down,
        "raised": slot.raised,
    }
    return Evidence(SOURCE, worker.rank, data)


def leaving(worker: WorkerProcess) -> bool:
    """Whether a rank that still lives has begun to shut down without an exception: its exit code is near, and will
    tell whether it left in good order."""
    if glob.glob(os.path.join(glob.escape(worker.rank_dir), "error-*.json")):
        return False
    try:
        slot = black_box.read(worker.black_box, worker.local_rank) if worker.black_box else None
    except OSError:
        return False
    return slot is not None and slot.pid == worker.pid and slot.shut_down is not None

"""The latest collectives of a rank and the line that ended it, from the mapped slot that outlives the rank."""

from __future__ import annotations

from safelaunch import black_box
from safelaunch.model import Collective, Evidence, Incident, Location, WorkerProcess, to_json

SOURCE = "collectives"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`collectives`, oldest first, and `exit_call`, the line that called `sys.exit` or `os._exit`."""
    if not worker.black_box:
        return Evidence(SOURCE, worker.rank, unavailable="there is no black box in this run")
    slot = black_box.read(worker.black_box, worker.local_rank)
    if slot is None or slot[0] != worker.pid:
        return Evidence(SOURCE, worker.rank, unavailable="the rank did not open its black box")
    _, exit_call, entries = slot
    file, _, rest = exit_call.partition("\0")
    line, _, function = rest.partition("\0")
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
        for entry in entries
    ]
    data = {
        "collectives": to_json(collectives),
        "exit_call": to_json(Location(file, int(line or 0), function)) if file else None,
    }
    return Evidence(SOURCE, worker.rank, data)

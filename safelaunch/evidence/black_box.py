"""The latest collectives of a rank, its pulse and the line that ended it, from the mapped slot that outlives it."""

from __future__ import annotations

import glob
import os
import time

from safelaunch import black_box, black_box_reader, pulse
from safelaunch.codec import to_json
from safelaunch.model import Collective, Evidence, ExitCall, Incident, LoaderPass, Location, Phase, WorkerProcess

SOURCE = "collectives"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`collectives`, oldest first, and `exit_call`, the line that called `sys.exit` or `os._exit`, or the file of the
    `program` that has ended without one, and `shut_down`.

    Of the pulse at `t`: the open `phases`, `beat` and `progress` (0: never), `steps`, `stepped`, `batches`,
    `exhausted`.
    """
    if not worker.black_box:
        return Evidence(SOURCE, worker.rank, unavailable="there is no black box in this run")
    slot = black_box_reader.read(worker.black_box, worker.local_rank, worker.owner)
    if slot is None or slot.pid != worker.pid:
        return Evidence(SOURCE, worker.rank, unavailable="the rank did not open its black box")
    collectives = [
        Collective(
            op=entry.op,
            group=entry.group,
            seq=entry.seq,
            numel=entry.numel,
            dtype=entry.dtype,
            done=entry.status in (black_box.DONE, black_box.ISSUED),
            t=entry.t,
            group_size=entry.group_size,
            location=Location(entry.file, entry.line, entry.function),
            issued=entry.status == black_box.ISSUED,
            raised=entry.status == black_box.RAISED_AN_ERROR,
            peer=entry.peer if entry.peer >= 0 else None,
            thread=entry.thread,
            tag=entry.tag,
            how=entry.how,
        )
        for entry in slot.entries
    ]
    called = None
    if slot.exit_call:
        place = Location(*slot.exit_call[:3])
        called = ExitCall(place, slot.exit_call[3], slot.exit_said, signal=slot.exit_signal)
    lost = bool(slot.pulse.state & pulse.RECORD_LOST)
    data = {
        "collectives": [] if lost else to_json(collectives),
        "recording": not lost,
        "exit_call": to_json(called),
        "program": slot.program,
        "shut_down": slot.shut_down,
        "raised": slot.raised,
        "ended": bool(slot.pulse.state & pulse.PROGRAM_ENDED),
        "t": time.monotonic(),
        "phases": to_json([Phase(*phase) for phase in slot.pulse.phases]),
        "beat": slot.pulse.beat,
        "progress": slot.pulse.progress,
        "steps": slot.pulse.steps,
        "stepped": slot.pulse.stepped or None,
        "batches": slot.pulse.batches,
        "exhausted": slot.pulse.exhausted or None,
        "loaders": to_json([_loader(*one) for one in slot.pulse.loaders]),
    }
    return Evidence(SOURCE, worker.rank, data)


def _loader(place: int, number: int, given: int, length: int, ended: float) -> LoaderPass:
    return LoaderPass(place, number, given, length if length >= 0 else None, ended or None)


def leaving(worker: WorkerProcess) -> bool:
    """Whether a rank that still lives has begun to shut down without an exception: its exit code is near, and will
    tell whether it left in good order."""
    if glob.glob(os.path.join(glob.escape(worker.rank_dir), "error-*.json")):
        return False
    try:
        slot = black_box_reader.read(worker.black_box, worker.local_rank) if worker.black_box else None
    except OSError:
        return False
    return slot is not None and slot.pid == worker.pid and slot.shut_down is not None

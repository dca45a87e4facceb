"""What a rank said of its GPUs, from the file beside the black box; see `worker/devices.py`."""

from __future__ import annotations

import json

from safelaunch import black_box
from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.evidence import beside
from safelaunch.model import Evidence, Incident, RankDevice, WorkerProcess

SOURCE = "device"


def path(worker: WorkerProcess) -> str:
    """Where the rank writes."""
    return black_box.beside(worker.black_box, worker.local_rank, SOURCE)


def read(worker: WorkerProcess) -> RankDevice | None:
    """What the rank said last; None where it has said nothing."""
    try:
        said = json.loads(beside.read(worker, SOURCE))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("pid") != worker.pid:
        return None  # a rank of an earlier attempt, in the same place
    try:
        return checked(RankDevice, {**said, "rank": worker.rank, "local_rank": worker.local_rank})
    except ShapeError:
        return None


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """All fields of `model.RankDevice`."""
    found = read(worker) if worker.black_box else None
    if found is None:
        return Evidence(SOURCE, worker.rank, unavailable="the rank has not said anything of its GPUs")
    return Evidence(SOURCE, worker.rank, to_json(found))

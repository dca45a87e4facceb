"""What DistributedDataParallel reduces on a rank, as its beat thread left it when the Flight Recorder was asked for."""

from __future__ import annotations

import json

from safelaunch import black_box
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "reducers"
FRESH_S = 3.0  # a look takes at most this long; what is older is of a look before, and the rank has not answered since


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`reducers`, each as `model.Reducer`. Its place is behind the collector that asks."""

    def nothing(reason: str) -> Evidence:
        return Evidence(SOURCE, worker.rank, unavailable=reason)

    if not worker.black_box:
        return nothing("there is no black box in this run")
    try:
        with open(black_box.beside(worker.black_box, worker.local_rank, SOURCE), encoding="utf-8") as file:
            said = json.load(file)
    except FileNotFoundError:
        return nothing("the rank has no DistributedDataParallel model, or was not asked")
    if said["pid"] != worker.pid or said["t"] < incident.t - FRESH_S:
        return nothing("the rank has not answered")
    return Evidence(SOURCE, worker.rank, {"reducers": said["reducers"]})

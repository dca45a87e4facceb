"""What a rank says of itself when the Flight Recorder is asked for: its beat thread leaves it beside the black box."""

from __future__ import annotations

import json

from safelaunch.evidence import beside
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "word"
SAID = ("reducers", "handling", "lost_thread", "store_keys", "store_wants", "store_polls", "tasks", "stream")
FRESH_S = 3.0  # a look takes at most this long; what is older is of a look before, and the rank has not answered since


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`reducers`, each as `model.Reducer`; `handling`, the exception that the main thread is handling, and
    `lost_thread`, the latest that has ended another thread, as `model.PyError`; `store_keys`, which it has set, and
    `store_wants`, which it waits for, and `store_polls`, at which it looks again and again; `tasks` of asyncio, each
    with its name and frames, innermost first; `stream`, how far its GPU has come, as `model.StreamProgress`. Its place
    is behind the collector that asks."""

    def nothing(reason: str) -> Evidence:
        return Evidence(SOURCE, worker.rank, unavailable=reason)

    if not worker.black_box:
        return nothing("there is no black box in this run")
    try:
        said = json.loads(beside.read(worker, SOURCE))
    except FileNotFoundError:
        return nothing("the rank has nothing to say of itself, or was not asked")
    if said["pid"] != worker.pid or said["t"] < incident.t - FRESH_S:
        return nothing("the rank has not answered")
    return Evidence(SOURCE, worker.rank, {name: said.get(name) for name in SAID})

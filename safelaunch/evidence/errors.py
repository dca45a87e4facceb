"""The uncaught exception that a rank recorded before its interpreter shut down."""

from __future__ import annotations

import glob
import json
import os

from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "error"


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """The earliest `error-PID.json` of the rank: a Python below a shell script writes one too."""
    records = []
    for path in glob.glob(os.path.join(glob.escape(worker.rank_dir), "error-*.json")):
        with open(path, encoding="utf-8") as file:
            records.append(json.load(file))
    if not records:
        return Evidence(SOURCE, worker.rank, unavailable="no uncaught Python exception was recorded")
    return Evidence(SOURCE, worker.rank, min(records, key=lambda record: record["t"]))

"""The uncaught exception that a rank recorded before its interpreter shut down."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
from typing import Any

from safelaunch import black_box, regular
from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.model import Evidence, Incident, PyError, WorkerProcess
from safelaunch.shortened import without_middle

SOURCE = "error"
LIMIT = 4 << 20  # bytes of all records. A rank writes some 100 kB at most, and the names of its parameters
MOST_TRACEBACK = 1 << 15  # characters: a rank keeps 18,000
MOST = 64  # records of one rank: each Python below it that fails leaves one


def paths(worker: WorkerProcess) -> list[str]:
    """The records that the rank has written: into its folder, or, where that disk was full, beside the black box."""
    found = glob.glob(os.path.join(glob.escape(worker.rank_dir), "error-*.json"))[:MOST] if worker.rank_dir else []
    if worker.black_box:
        found.append(black_box.beside(worker.black_box, worker.local_rank, f"error-{worker.pid}.json"))
    return [path for path in found if os.path.exists(path)]


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """The earliest `error-PID.json` of the rank: a Python below a shell script writes one too. A rank may have written
    anything there: what is no record of an exception is left out."""
    earliest: tuple[float, PyError] | None = None
    unreadable, left = "", LIMIT
    for path in paths(worker):
        try:
            data = regular.read(path, left)
            left -= len(data)
            error = bare(checked(PyError, without_advice(json.loads(data))))
            if earliest is None or error.t < earliest[0]:
                earliest = (error.t, error)
        except (OSError, ValueError, ShapeError, RecursionError) as fault:
            unreadable = f"{os.path.basename(path)} cannot be read: {fault}"
    if earliest is None:
        reason = unreadable or "no uncaught Python exception was recorded"
        return Evidence(SOURCE, worker.rank, unavailable=reason)
    return Evidence(SOURCE, worker.rank, to_json(earliest[1]))


def without_advice(record: Any) -> Any:
    """What a rank has written of an exception, without what its words mean and what to do: that is for us to say."""
    return {**record, "known": None} if isinstance(record, dict) else record


def bare(error: PyError) -> PyError:
    """An exception as a rank may tell of it: of bounded length, and without advice."""
    return dataclasses.replace(error, known=None, traceback=without_middle(error.traceback, 0, MOST_TRACEBACK))

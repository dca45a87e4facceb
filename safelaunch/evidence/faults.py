"""The stack that faulthandler wrote when a rank got a fatal signal (`fault-PID.txt`)."""

from __future__ import annotations

import glob
import os

from safelaunch import regular
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "fault"
LIMIT = 64 * 1024


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """The text of faulthandler, and whether our bootstrap ran in the rank at all."""
    paths = glob.glob(os.path.join(glob.escape(worker.rank_dir), "fault-*.txt"))
    for path in sorted(paths):
        text = regular.text(path, LIMIT) or ""
        if text.strip():
            return Evidence(SOURCE, worker.rank, {"text": text, "armed": True})
    if paths:
        return Evidence(SOURCE, worker.rank, {"text": "", "armed": True})
    return Evidence(SOURCE, worker.rank, unavailable="the rank's Python did not load safelaunch's bootstrap")

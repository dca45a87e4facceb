"""What a forked rank says of a change that an import would have looked at: `worker.cold_rank` writes it."""

from __future__ import annotations

import json
import os

from safelaunch import regular
from safelaunch.codec import ShapeError, checked
from safelaunch.model import ColdStart, WorkerProcess

FILE = "cold.json"
LONGEST = 1 << 14  # bytes


def read(worker: WorkerProcess) -> ColdStart | None:
    """What a rank says; None where it has said nothing."""
    try:
        return checked(ColdStart, json.loads(regular.read(os.path.join(worker.rank_dir, FILE), LONGEST)))
    except (OSError, ValueError, ShapeError, RecursionError):
        return None

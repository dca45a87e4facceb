"""agent.jsonl: every event of a run, one JSON document a line."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from safelaunch import files


class Journal:
    """Appends to `agent.jsonl`. A full disk silences it, once; it never stops a run."""

    def __init__(self, path: str) -> None:
        self.failed: OSError | None = None
        try:
            self._descriptor = files.append_to(path)
        except OSError as error:
            self.failed = error

    def write(self, event: str, **fields: Any) -> None:
        """Add one event with wall-clock time (seconds since the epoch) and CLOCK_MONOTONIC."""
        if self.failed is not None:
            return
        document = {"event": event, "time": round(time.time(), 6), "t": time.monotonic(), **fields}
        try:
            os.write(self._descriptor, json.dumps(document, default=str).encode() + b"\n")
        except OSError as error:
            self.failed = error

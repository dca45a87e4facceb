"""The last lines that a rank has written, where its output goes to files (`--tee`, `--redirects`)."""

from __future__ import annotations

import os

from safelaunch import regular
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "log"
LINES = 20
BYTES = 16 << 10


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """The end of its stderr, or of its stdout where there is nothing on stderr."""
    if not worker.logs:
        return Evidence(SOURCE, worker.rank, unavailable="its output goes to no file (--tee 3 keeps it)")
    for path in worker.logs:
        lines = tail(path)
        if lines:
            return Evidence(SOURCE, worker.rank, {"file": path, "lines": lines})
    return Evidence(SOURCE, worker.rank, unavailable="it has written nothing")


def tail(path: str) -> list[str]:
    """The last lines of a file that are not blank, without one that begins before what was read. Secrets are left out
    here, where what announces them is still there: it may stand on a line that is not kept.

    Raises:
        OSError: where it cannot be read.
    """
    from safelaunch import redaction  # its import costs a launch that fails nowhere 0.05 s

    with open(regular.descriptor(path), "rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - BYTES)
        file.seek(begin)
        text = file.read(BYTES).decode("utf-8", "replace")
    lines = text.replace("\r", "\n").split("\n")[1 if begin else 0 :]
    return [line.rstrip() for line in redaction.text("\n".join(lines)).split("\n") if line.strip()][-LINES:]

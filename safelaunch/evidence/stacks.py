"""Python stacks of a living rank, by py-spy without stopping it.

`--nonblocking` reads memory only: it interrupts no system call, and it returns when the rank is stopped or in
uninterruptible sleep, where the blocking mode hangs.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sysconfig
import time

from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "stack"


@functools.cache
def py_spy() -> str | None:
    """The py-spy that was installed with us, else one on PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "py-spy")
    return own if os.access(own, os.X_OK) else shutil.which("py-spy")


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """All threads' stacks as py-spy's JSON: a list of threads with frames, innermost first."""
    tool = py_spy()
    if tool is None:
        return Evidence(SOURCE, worker.rank, unavailable="py-spy is not installed")
    begun = time.monotonic()
    process = subprocess.Popen(
        [tool, "dump", "--nonblocking", "--json", "--pid", str(worker.pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, complaint = process.communicate(timeout=max(0.0, deadline - begun))
    except subprocess.TimeoutExpired:
        process.kill()
        return Evidence(SOURCE, worker.rank, unavailable="py-spy did not answer in time")
    elapsed = time.monotonic() - begun
    if process.returncode != 0:
        reason = complaint.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        return Evidence(SOURCE, worker.rank, unavailable=f"py-spy: {reason[-1]}", elapsed_s=elapsed)
    return Evidence(SOURCE, worker.rank, {"threads": json.loads(output)}, elapsed_s=elapsed)

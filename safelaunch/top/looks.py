"""Longer looks at ranks from outside, which a person asks for: the stacks of one, and the evidence of all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

from safelaunch import regular
from safelaunch.evidence import case, stacks
from safelaunch.evidence.stack_text import stack_text
from safelaunch.model import Incident, WorkerProcess

STACKS_S = 5.0
DUMP_S = 180.0
MOST = 1 << 20  # characters


def stacks_of(worker: WorkerProcess) -> str:
    """The stacks of a rank and of the Python processes below it, by py-spy, which stops nobody.

    It has no folder here: so no signal asks the rank to write there.
    """
    outside = replace(worker, rank_dir="")
    incident = Incident("hang", 0, (worker.rank,), time.monotonic())
    found = stacks.collect(incident, outside, time.monotonic() + STACKS_S)
    return stack_text(case.facts(outside, {found.source: found}))


def dump(run: str) -> str:
    """What `safelaunch dump` says of all ranks of this node; it takes some seconds.

    Args:
        run: the folder of their run, in which the evidence goes.
    """
    # Not by -m: what lies in the working directory is not to come before our own modules.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = f"import sys; sys.path[0] = {package!r}; from safelaunch.__main__ import main; main()"
    command = [sys.executable, "-c", program, "dump", "--color", "never", run]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DUMP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the ranks could not be looked at: {error}"
    return done.stdout.decode("utf-8", "replace")[:MOST]


def kept(incident: str, rank: int) -> str:
    """What an incident has kept of the stacks of a rank."""
    path = os.path.join(incident, "evidence", f"rank_{rank:03}", "stack.txt")
    try:
        said = regular.read(path, MOST, os.stat(os.path.dirname(incident)).st_uid)
    except OSError as error:
        return f"no stacks of rank {rank} are kept in {incident}: {error.strerror}"
    return said.decode("utf-8", "replace")

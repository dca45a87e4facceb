"""What torch's watchdogs have written of ranks whose processes they end: their Flight Recorders as they were.

The watchdog of an NCCL backend writes its dump before it aborts (TORCH_NCCL_DUMP_ON_TIMEOUT, on by default). A rank may
have left anything under that name, so a child process reads it, with limits of time and memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping

from safelaunch.codec import checked, to_json
from safelaunch.evidence import programs
from safelaunch.evidence.flight_recorder import SOURCE
from safelaunch.evidence.pipes import FILES
from safelaunch.model import Evidence, WorkerProcess

ALL_S = 10.0  # for the dumps of all ranks: one of 2,000 entries takes 0.05 s
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = "safelaunch.evidence.own_dump_probe"
# Not by -m: what lies in the working directory is for the script.
READER = f"import sys; sys.path[:1] = []; sys.path.append({ROOT!r}); import {PROGRAM} as it; it.main()"


def left_by(workers: Iterable[WorkerProcess], *environs: Mapping[str, str]) -> tuple[Evidence, ...]:
    """The recorders of ranks that do not answer any more, as evidence of `flight_recorder`, with `given_up`: whether a
    call had lasted for longer than its timeout when the process ended, and `late`: the first that has completed after
    its timeout, where none was still waited for. Nothing of a rank without a dump of its own, nor of one that lives and
    had given up nothing: its dump may be of another hour.

    Args:
        workers: of one attempt, which have ended, or are being ended.
        environs: of the ranks, the one that counts first: how their files are called.
    """
    stem = next((environ[name] for name in FILES for environ in environs if environ.get(name)), "")
    paths = [(worker, f"{stem}{worker.rank}") for worker in workers] if stem else []
    left = [(worker, path) for worker, path in paths if os.path.lexists(path)]
    until = time.monotonic() + ALL_S
    found: list[Evidence] = []
    while left:
        read = programs.answers([sys.executable, "-c", READER], to_json(left), max(0.1, until - time.monotonic()))
        found += [checked(Evidence, one) for one in read if one is not None]
        if len(read) < len(left):
            worker, path = left[len(read)]
            found.append(
                Evidence(SOURCE, worker.rank, unavailable=f"{path}: whatever reads it does not come to an end")
            )
        left = left[len(read) + 1 :]
    return tuple(found)

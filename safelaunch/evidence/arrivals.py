"""When ranks came to their collectives, as torch's Flight Recorder has it: also to those that C++ makes (DDP, FSDP)."""

from __future__ import annotations

import time

from safelaunch.evidence import flight_recorder
from safelaunch.evidence.flight_recorder import GLOO, NAMES
from safelaunch.model import WorkerProcess

Arrived = tuple[int, float, str, str, int]  # order, CLOCK_MONOTONIC, operation, group, number


def recorded(worker: WorkerProcess) -> list[Arrived]:
    """The calls of the latest dump of a rank, oldest first. The clocks of the ranks of a node are the same.

    Each recorder numbers its entries and its groups for itself: what is not gloo's has its backend before the name of
    its group, and the order is that of time.

    Raises:
        OSError, ValueError: when there is no dump, or none that can be read.
    """
    epoch_ns = time.time_ns() - time.monotonic_ns()
    found = []
    for backend, dump in flight_recorder.read(worker).items():
        prefix = "" if backend == GLOO else f"{backend}:"
        for entry in dump.get("entries") or []:
            op = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
            name = ("send" if "send" in op else "recv") if entry.get("is_p2p") else NAMES.get(op, op)
            t = (int(entry["time_created_ns"]) - epoch_ns) / 1e9
            group = f"{prefix}{entry['process_group'][0]}"
            found.append((t, int(entry["record_id"]), name, group, int(entry["collective_seq_id"])))
    found.sort(key=lambda call: call[:2])
    return [(order, t, name, group, seq) for order, (t, _, name, group, seq) in enumerate(found, 1)]

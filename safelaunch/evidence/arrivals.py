"""When ranks came to their collectives, as torch's Flight Recorder has it: also to those that C++ makes (DDP, FSDP)."""

from __future__ import annotations

import time

from safelaunch.evidence import flight_recorder
from safelaunch.evidence.flight_recorder import NAMES
from safelaunch.model import WorkerProcess

Arrived = tuple[int, float, str, str, int]  # order, CLOCK_MONOTONIC, operation, group, number


def recorded(worker: WorkerProcess) -> list[Arrived]:
    """The calls of the latest dump of a rank, oldest first. The clocks of the ranks of a node are the same.

    Raises:
        OSError, ValueError: when there is no dump, or none that can be read.
    """
    entries = [entry for dump in flight_recorder.read(worker).values() for entry in dump.get("entries") or []]
    epoch_ns = time.time_ns() - time.monotonic_ns()
    found = []
    for entry in entries:
        op = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
        name = ("send" if "send" in op else "recv") if entry.get("is_p2p") else NAMES.get(op, op)
        found.append(
            (
                int(entry["record_id"]),
                (int(entry["time_created_ns"]) - epoch_ns) / 1e9,
                name,
                str(entry["process_group"][0]),
                int(entry["collective_seq_id"]),
            )
        )
    return sorted(found, key=lambda call: (call[1], call[0]))  # each recorder numbers for itself

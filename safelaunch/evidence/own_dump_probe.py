"""A program: reads the dumps that ranks have left, for `own_dumps`, and may end over one of them."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from safelaunch.codec import from_json, to_json
from safelaunch.evidence import counters, flight_recorder
from safelaunch.evidence.flight_recorder import NAMES, SOURCE
from safelaunch.evidence.offline import dump_files, dump_shape
from safelaunch.model import Collective, Evidence, WorkerProcess

# A watchdog counts from another moment than the recorder, and looks at its calls each 100 ms
# (kWatchdogThreadSleepMillis of ProcessGroupNCCL.hpp); with room above that.
EARLY_S = 1.0


def main() -> None:
    """The reader: a line of JSON for each file, null where it says nothing of this attempt."""
    dump_files.limit()
    for worker, path in json.load(sys.stdin):
        with dump_files.bounded(path):
            found = _of(from_json(WorkerProcess, worker), path)
        print(json.dumps(to_json(found)), flush=True)


def _of(worker: WorkerProcess, path: str) -> Evidence | None:
    epoch_ns = time.time_ns() - time.monotonic_ns()
    try:
        document = dump_files.document(path, os.getuid())
        entries = [one for one in document.get("entries") or [] if not one["profiling_name"].startswith("gloo:")]
        backend = entries[-1]["profiling_name"].partition(":")[0] if entries else ""
        document = {**document, "entries": entries}
        calls = flight_recorder.chosen(document, epoch_ns, backend)
        # A process has but one life: what was recorded before it began is of an earlier attempt.
        if not calls or calls[-1].t * 1e9 + epoch_ns < _begun_ns(worker):
            return None
        late = next((one for entry in entries if (one := _came_late(entry)) is not None), None)
        waits = any(_is_given_up(call, worker) for call in calls)
        given_up = waits or late is not None
        if worker.exit is None and not given_up:
            return None
        data = {
            "collectives": to_json(calls),
            "progress": to_json(counters.progress(document, backend)),
            "overwritten": flight_recorder.overwritten(entries),
            "given_up": given_up,
            "late": None if waits else late,
        }
    except Exception as error:  # a damaged file may end in any of the unpickler's errors
        return Evidence(SOURCE, worker.rank, unavailable=f"{path}: {error!r}")
    return Evidence(SOURCE, worker.rank, data)


def _is_given_up(call: Collective, worker: WorkerProcess) -> bool:
    until = worker.exit.t if worker.exit is not None else time.monotonic()
    return not call.done and 0 < call.timeout_s <= until - call.t + EARLY_S


def _came_late(entry: dict[str, Any]) -> dict[str, Any] | None:
    """A call that has completed after its timeout. The watchdog's mind is made up by then: while it writes its dump,
    the last rank may come."""
    timeout_ms, ended = dump_shape.whole(entry, "timeout_ms"), dump_shape.whole(entry, "time_discovered_completed_ns")
    took_s = (ended - dump_shape.whole(entry, "time_created_ns")) / 1e9
    if entry.get("state") != "completed" or not 0 < timeout_ms / 1000 <= took_s:
        return None
    call = entry["profiling_name"].partition(":")[2]
    seq = dump_shape.whole(entry, "collective_seq_id")
    return {"call": f"{NAMES.get(call, call)} #{seq}", "took_s": took_s, "timeout_s": timeout_ms / 1000}


def _begun_ns(worker: WorkerProcess) -> float:
    """When the process was started, by the wall clock."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - worker.start / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age * 1e9

"""What torch's watchdogs have written of ranks whose processes they have ended: their Flight Recorders as they were.

The watchdog of an NCCL backend writes its dump before it aborts (TORCH_NCCL_DUMP_ON_TIMEOUT, on by default).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from safelaunch.codec import to_json
from safelaunch.evidence import counters, flight_recorder
from safelaunch.evidence.flight_recorder import SOURCE
from safelaunch.evidence.offline import dump_files
from safelaunch.evidence.pipes import FILES
from safelaunch.model import Collective, Evidence, WorkerProcess

# A watchdog counts from another moment than the recorder, and looks at its calls each 100 ms
# (kWatchdogThreadSleepMillis of ProcessGroupNCCL.hpp); with room above that.
EARLY_S = 1.0


def of_the_dead(workers: Iterable[WorkerProcess], *environs: Mapping[str, str]) -> tuple[Evidence, ...]:
    """The recorders of ranks that have ended, as evidence of `flight_recorder`, with `given_up`: whether a call had
    lasted for longer than its timeout when the process ended. Nothing of a rank without a dump of its own.

    Args:
        workers: of one attempt.
        environs: of the ranks, the one that counts first: how their files are called.
    """
    stem = next((environ[name] for name in FILES for environ in environs if environ.get(name)), "")
    ended = [worker for worker in workers if worker.exit is not None] if stem else []
    return tuple(found for worker in ended if (found := _of(worker, f"{stem}{worker.rank}")) is not None)


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
        data = {
            "collectives": to_json(calls),
            "progress": to_json(counters.progress(document, backend)),
            "overwritten": flight_recorder.overwritten(entries),
            "given_up": any(_is_given_up(call, worker) for call in calls),
        }
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file may end in any of the unpickler's errors
        return Evidence(SOURCE, worker.rank, unavailable=f"{path}: {error!r}")
    return Evidence(SOURCE, worker.rank, data)


def _is_given_up(call: Collective, worker: WorkerProcess) -> bool:
    assert worker.exit is not None
    return not call.done and 0 < call.timeout_s <= worker.exit.t - call.t + EARLY_S


def _begun_ns(worker: WorkerProcess) -> float:
    """When the process was started, by the wall clock."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - worker.start / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age * 1e9

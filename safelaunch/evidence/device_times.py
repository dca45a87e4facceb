"""When a rank's GPU came to its calls, as its own thread has seen it (`worker.device_times`)."""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass

from safelaunch.evidence import beside
from safelaunch.model import WorkerProcess

MarkOfDevice = tuple[int, str, str, tuple[str, int], float, float]  # stream, kind, call, line, enqueued, reached


@dataclass(frozen=True)
class DeviceTimes:
    """What was seen of a GPU from `begun` to `ended`: its marks in the order in which it came to them. `missing` says
    why there are none."""

    begun: float
    ended: float
    marks: tuple[MarkOfDevice, ...] = ()
    missing: str = ""


def read(worker: WorkerProcess) -> DeviceTimes:
    """The latest answer of a rank.

    Raises:
        OSError, ValueError: when there is none, or none that can be read.
    """
    head, _, body = beside.read(worker, "stream").partition(b"\n")
    said = json.loads(head)
    times = array("d")
    times.frombytes(body)
    if said["pid"] != worker.pid:
        raise ValueError("it is of another process")
    calls = [(sys.intern(kind), sys.intern(call), (file, line)) for kind, call, file, line, _ in said["calls"]]
    rows = zip(*(iter(times),) * 4, strict=True)
    marks = tuple((int(stream), *calls[int(call)], enqueued, reached) for stream, call, enqueued, reached in rows)
    return DeviceTimes(said["begun"], said["ended"], marks, str(said["missing"]))

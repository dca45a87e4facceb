"""The entries of torch's Flight Recorder, asked of the rank's own beat thread while its main thread is stuck.

Gloo's entries keep the state `scheduled` for ever: what says that they are done is `retired`.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

from safelaunch import black_box, regular
from safelaunch.codec import to_json
from safelaunch.model import Collective, Evidence, Incident, WorkerProcess

SOURCE = "recorder"
WAIT_S = 0.6  # a full ring of 2000 entries takes 14 ms to write; the beat thread looks five times a second
POLL_S = 0.01
STALE_S = 1.0
LAST, DEEP = 20, 200

# As ProcessGroupNCCL names them, and as the user calls them.
NAMES = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}

# c10's names of types, and torch's.
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`collectives` of each process group, oldest first: the latest, and those that are not done; and whether older
    ones have been `overwritten`."""
    begun = time.monotonic()

    def nothing(reason: str) -> Evidence:
        return Evidence(SOURCE, worker.rank, unavailable=reason, elapsed_s=time.monotonic() - begun)

    if not worker.black_box:
        return nothing("there is no black box in this run")
    reader = black_box.Reader(worker.black_box)
    pulse = reader.pulse(worker.local_rank, worker.pid)
    if pulse is None:
        return nothing("the rank did not open its black box")
    if not pulse.beat:
        return nothing("the interpreter has not begun to beat")
    if begun - pulse.beat > STALE_S:
        return nothing(f"the interpreter does not run (no beat for {begun - pulse.beat:.1f} s)")
    reader.ask(worker.local_rank)
    asked = pulse.asked + 1
    while pulse.answered < asked:
        if time.monotonic() + POLL_S > min(deadline, begun + WAIT_S):
            reason = "" if pulse.state else "; it has not initialised torch.distributed"
            return nothing(f"the rank did not answer within {time.monotonic() - begun:.1f} s{reason}")
        time.sleep(POLL_S)
        pulse = reader.pulse(worker.local_rank, worker.pid)
        if pulse is None:
            return nothing("the rank has ended")
    try:
        dump = json.loads(regular.read(black_box.beside(worker.black_box, worker.local_rank, "recorder")))
    except FileNotFoundError:
        return nothing("the rank has no Flight Recorder")
    entries = dump.get("entries") or []
    data = {
        "collectives": to_json(chosen(entries, time.time_ns() - time.monotonic_ns())),
        "overwritten": overwritten(entries),
    }
    return Evidence(SOURCE, worker.rank, data, elapsed_s=time.monotonic() - begun)


def chosen(entries: list[dict[str, Any]], epoch_ns: int) -> list[Collective]:
    """The last `LAST` collectives of each group and those of the last `DEEP` that are not done. `epoch_ns` is the
    wall clock at CLOCK_MONOTONIC 0."""
    seen: dict[str, int] = {}
    kept = []
    for entry in reversed(entries):
        if entry.get("is_p2p"):
            continue
        collective = _collective(entry, epoch_ns)
        place = seen.setdefault(collective.group, 0)
        seen[collective.group] += 1
        if place < LAST or (place < DEEP and not collective.done):
            kept.append(collective)
    return kept[::-1]


def overwritten(entries: list[dict[str, Any]]) -> bool:
    """Whether the recorder had no room for older entries: it numbers them from 0 (FlightRecorder.hpp, `record_id`)."""
    return bool(entries) and int(entries[0].get("record_id") or 0) > 0


def _collective(entry: dict[str, Any], epoch_ns: int) -> Collective:
    op = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
    sizes, dtypes = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
    return Collective(
        op=NAMES.get(op, op),
        group=str(entry["process_group"][0]),
        seq=int(entry["collective_seq_id"]),
        numel=math.prod(sizes[0]) if sizes else -1,
        dtype=DTYPES.get(dtypes[0], dtypes[0]) if dtypes else "",
        done=bool(entry.get("retired")) or entry.get("state") == "completed",
        t=(int(entry["time_created_ns"]) - epoch_ns) / 1e9,
    )

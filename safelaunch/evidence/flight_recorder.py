"""What torch's Flight Recorders hold, asked of the rank's own beat thread while its main thread is stuck.

Gloo's entries keep the state `scheduled` for ever: what says that they are done is `retired`. Of the calls of other
backends, which return at once, the state is that on their device; `nccl2` (torch 2.15) never says that one has started.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from typing import Any

from safelaunch import black_box_reader
from safelaunch.codec import LARGEST, to_json
from safelaunch.evidence import beside, counters
from safelaunch.evidence.offline import dump_shape
from safelaunch.model import CallState, Collective, Evidence, Incident, WorkerProcess

SOURCE = "recorder"
MOST = 32 << 20  # bytes: 600 for each entry, of which the user may ask for 20,000 (TORCH_FR_BUFFER_SIZE)
WAIT_S = 0.6  # a full ring of 2000 entries takes 14 ms to write; the beat thread looks five times a second
POLL_S = 0.01
STALE_S = 1.0
LAST, DEEP, USUAL = 20, 200, 5
OUTPUTS = 64  # of a call that are kept: an all_gather has one for each rank
GLOO = "gloo"
# Messages that the old backend enqueues together have one number, and no state of their own: an entry behind them has
# it (ProcessGroupNCCL.cpp, endCoalescing).
COALESCED = ":coalesced"
MESSAGE = re.compile(r"(send|recv) \d+(?:->|<-)(\d+)")  # with the other's rank within the group

# As ProcessGroupNCCL names them, and as the user calls them.
NAMES = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}

# c10's names of types, and torch's.
DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`collectives` of each process group, oldest first: the latest, and those that are not done; `progress`, how far
    the rank has come in each group; and whether older calls have been `overwritten`."""
    begun = time.monotonic()

    def nothing(reason: str) -> Evidence:
        return Evidence(SOURCE, worker.rank, unavailable=reason, elapsed_s=time.monotonic() - begun)

    if not worker.black_box:
        return nothing("there is no black box in this run")
    reader = black_box_reader.Reader(worker.black_box, worker.owner)
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
        dumps = read(worker)
    except FileNotFoundError:
        return nothing("the rank has no Flight Recorder")
    epoch_ns = time.time_ns() - time.monotonic_ns()
    data = {
        "collectives": to_json([call for name, dump in dumps.items() for call in chosen(dump, epoch_ns, name)]),
        "progress": to_json([one for name, dump in dumps.items() for one in counters.progress(dump, name)]),
        "overwritten": not worker.since and any(overwritten(dump.get("entries") or []) for dump in dumps.values()),
    }
    return Evidence(SOURCE, worker.rank, data, elapsed_s=time.monotonic() - begun)


def read(worker: WorkerProcess) -> dict[str, dict[str, Any]]:
    """The latest dumps of a rank, by backend: of one that was in another job before, what belongs to this one.

    Raises:
        OSError, ValueError: when there are none, or none that can be read.
    """
    found = json.loads(beside.read(worker, "recorder", MOST))
    dumps = {str(name): dump_shape.plain(dump)[0] for name, dump in found.items()}
    return {name: _since(dump, worker.since) for name, dump in dumps.items()} if worker.since else dumps


def _since(dump: dict[str, Any], since: float) -> dict[str, Any]:
    """The dump without calls before that CLOCK_MONOTONIC: a later group of the same name has numbers of its own."""
    first_ns = since * 1e9 + time.time_ns() - time.monotonic_ns()
    kept = [one for one in dump.get("entries") or [] if dump_shape.whole(one, "time_created_ns") >= first_ns]
    return {**dump, "entries": kept}


def chosen(dump: dict[str, Any], epoch_ns: int, backend: str) -> list[Collective]:
    """The last `LAST` calls of each group, of the last `DEEP` those that are not done, and the latest few that are,
    which tell what is usual; of gloo no messages.

    Args:
        dump: of one recorder.
        epoch_ns: the wall clock at CLOCK_MONOTONIC 0.
        backend: whose recorder it is.
    """
    seen: dict[tuple[str, bool], int] = {}
    ended: dict[tuple[str, bool], int] = {}
    kept = []
    members = _members(dump)
    for entry in reversed(_with_batches(dump.get("entries") or [])):
        if entry.get("is_p2p") and backend == GLOO:
            continue
        collective = _collective(entry, epoch_ns, backend, members)
        kind = (collective.group, collective.peer is not None)
        place = seen.setdefault(kind, 0)
        seen[kind] += 1
        if collective.done:
            ended[kind] = ended.get(kind, 0) + 1
        if place < LAST or (place < DEEP and (not collective.done or ended[kind] <= USUAL)):
            kept.append(collective)
    return kept[::-1]


def overwritten(entries: list[dict[str, Any]]) -> bool:
    """Whether the recorder had no room for older entries: it numbers them from 0 (FlightRecorder.hpp, `record_id`)."""
    return bool(entries) and int(entries[0].get("record_id") or 0) > 0


def _members(dump: dict[str, Any]) -> dict[str, list[int]]:
    """The global ranks of the groups of a recorder, by name; its messages are between ranks within a group."""
    found = {}
    for config in (dump.get("pg_config") or {}).values():
        ranks = json.loads(config.get("ranks") or "[]")
        if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks):
            found[str(config.get("name"))] = ranks
    return found


def _collective(entry: dict[str, Any], epoch_ns: int, backend: str, members: dict[str, list[int]]) -> Collective:
    op = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
    # NCCL's watchdog retires what it gives up, too.
    done = entry.get("state") == "completed" or (backend == GLOO and bool(entry.get("retired")))
    state: CallState = ""
    if backend != GLOO:
        state = "completed" if done else "started" if entry.get("state") == "started" else "enqueued"
    message = MESSAGE.fullmatch(op) if entry.get("is_p2p") else None
    group = str(entry["process_group"][0])
    other = int(message[2]) if message else None
    if other is not None and other < len(members.get(group, ())):
        other = members[group][other]
    sizes, dtypes = dump_shape.sizes(entry), dump_shape.dtypes(entry)
    return Collective(
        op=message[1] if message else NAMES.get(op, op),
        group=group,
        seq=dump_shape.whole(entry, "p2p_seq_id" if message else "collective_seq_id"),
        numel=_elements(sizes[0]) if sizes else -1,
        dtype=DTYPES.get(dtypes[0], dtypes[0]) if dtypes else "",
        done=done,
        t=(dump_shape.whole(entry, "time_created_ns") - epoch_ns) / 1e9,
        peer=other,
        state=state,
        timeout_s=dump_shape.whole(entry, "timeout_ms") / 1000,
        outputs=_outputs(entry),
    )


def _with_batches(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries whose messages have the state of their batch. The end of one is no collective: it has the number of the
    last one before it."""
    states = {
        _batch(entry): entry.get("state")
        for before, entry in itertools.pairwise(entries)
        if entry["profiling_name"].endswith(COALESCED)
        and before.get("is_p2p")
        and (_batch(before), before.get("op_id")) == (_batch(entry), entry.get("op_id"))
    }
    if not states:
        return entries
    return [
        {**entry, "state": states.get(_batch(entry), entry.get("state"))} if entry.get("is_p2p") else entry
        for entry in entries
        if entry.get("is_p2p") or not (entry["profiling_name"].endswith(COALESCED) and _batch(entry) in states)
    ]


def _batch(entry: dict[str, Any]) -> tuple[str, object]:
    return str(entry["process_group"][0]), entry.get("p2p_seq_id")


def _outputs(entry: dict[str, Any]) -> tuple[int, ...]:
    shapes = dump_shape.shapes(entry, "output_sizes", OUTPUTS + 1)
    return tuple(map(_elements, shapes)) if len(shapes) <= OUTPUTS else ()


def _elements(dimensions: list[int]) -> int:
    """Of a tensor; -1 for more than there can be."""
    count = math.prod(dimensions)
    return count if count < LARGEST else -1

"""What a rank says of itself when the Flight Recorder is asked for: its beat thread leaves it beside the black box."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from safelaunch.codec import ShapeError, checked, to_json
from safelaunch.evidence import beside
from safelaunch.evidence.errors import bare
from safelaunch.model import Evidence, Incident, Location, PyError, Reducer, StreamProgress, WorkerProcess

SOURCE = "self_report"
MOST_KEYS, WIDTH = 64, 512  # keys of the store, as many as a rank keeps; and characters of each
FRESH_S = 3.0  # a look takes at most this long; what is older is of a look before, and the rank has not answered since


@dataclass(frozen=True)
class Task:
    """A task of asyncio, and where it waits, innermost frame first."""

    name: str
    frames: tuple[Location, ...] = ()


@dataclass(frozen=True)
class Said:
    """What a rank says: `handling` is the exception that its main thread is handling, `lost_thread` the latest that has
    ended another thread; `store_keys` it has set, `store_wants` it waits for, at `store_polls` it looks again and
    again; `looks_at` are names of its innermost line that hold paths, with these; `stream` is how far its GPU has come.
    """

    reducers: tuple[Reducer, ...] | None = None
    handling: PyError | None = None
    lost_thread: PyError | None = None
    store_keys: tuple[str, ...] | None = None
    store_wants: tuple[str, ...] | None = None
    store_polls: tuple[str, ...] | None = None
    looks_at: tuple[tuple[str, str], ...] | None = None
    tasks: tuple[Task, ...] | None = None
    stream: StreamProgress | None = None


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """All fields of `Said`. Its place is behind the collector that asks."""

    def nothing(reason: str) -> Evidence:
        return Evidence(SOURCE, worker.rank, unavailable=reason)

    if not worker.black_box:
        return nothing("there is no black box in this run")
    try:
        said = json.loads(beside.read(worker, SOURCE))
    except FileNotFoundError:
        return nothing("the rank has nothing to say of itself, or was not asked")
    pid, t = (said.get(name) for name in ("pid", "t")) if isinstance(said, dict) else (None, None)
    if pid != worker.pid or not isinstance(t, float) or t < incident.t - FRESH_S:
        return nothing("the rank has not answered")
    try:
        told = checked(Said, said)
    except ShapeError as error:
        return nothing(f"what the rank says of itself is not of its shape{error}")
    told = dataclasses.replace(
        told,
        store_keys=_latest(told.store_keys),
        store_wants=_latest(told.store_wants),
        store_polls=_latest(told.store_polls),
        handling=bare(told.handling) if told.handling is not None else None,
        lost_thread=bare(told.lost_thread) if told.lost_thread is not None else None,
    )
    return Evidence(SOURCE, worker.rank, to_json(told))


def _latest(keys: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return tuple(key[:WIDTH] for key in keys[-MOST_KEYS:]) if keys is not None else None

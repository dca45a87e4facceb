"""What ranks have left of a trace in `traces/NUMBER` of a run directory (`worker.tracing`), checked as it is read."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from safelaunch import black_box, black_box_reader, regular
from safelaunch.codec import ShapeError, checked
from safelaunch.model.traces import RankEvents, RankTrace, StepMark, TracedCall

META, EVENTS, CALLS = "meta", "json", "calls"
MOST_META = 1 << 20
MOST_EVENTS = 512 << 20  # bytes of one rank's trace: ten times that as objects
LATEST = 1 << 62  # of numbers that a file may hold


@dataclass(frozen=True)
class _Said:
    """What a rank says of its trace."""

    pid: int = 0
    thread: int = 0
    cuda: bool = False
    steps: tuple[tuple[float, ...], ...] = ()
    write_s: float = 0.0
    interrupted: bool = False
    missing: str = ""


def name(rank: int, what: str) -> str:
    """The name of a rank's file."""
    return f"rank_{rank:03d}.{what}"


def read(folder: str, rank: int, host: str, owner: int | None) -> RankTrace:
    """The trace of a rank, without its events; `missing` says why there is none.

    Args:
        folder: `traces/NUMBER`.
        rank: whose.
        host: of its node.
        owner: whose files they have to be.
    """

    def path(what: str) -> str:
        return os.path.join(folder, name(rank, what))

    nothing = RankTrace(rank, host)
    try:
        said = checked(_Said, json.loads(regular.read(path(META), MOST_META, owner)))
        if said.missing:
            return dataclasses.replace(nothing, missing=said.missing)
        marks = tuple(_mark(one) for one in said.steps)
        if len(marks) < 2:
            return dataclasses.replace(nothing, missing="it has recorded no step")
        slot = regular.read(path(CALLS), black_box.SLOT, owner)
    except FileNotFoundError:
        return dataclasses.replace(nothing, missing="it has left none")
    except (OSError, ValueError, RecursionError, ShapeError) as error:
        return dataclasses.replace(nothing, missing=f"it cannot be read: {error}")
    calls = _calls(slot, marks[0].t, marks[-1].t) if len(slot) == black_box.SLOT else ()
    return dataclasses.replace(
        nothing,
        pid=said.pid,
        thread=said.thread,
        path=path(EVENTS),
        owner=owner,
        marks=marks,
        calls=calls,
        cuda=said.cuda,
        write_s=said.write_s,
        interrupted=said.interrupted,
    )


def _mark(numbers: tuple[float, ...]) -> StepMark:
    count, t, wall_ns, loading, waited = numbers
    return StepMark(int(count), t, int(wall_ns), loading, waited)


def _calls(slot: bytes, begun: float, ended: float) -> tuple[TracedCall, ...]:
    entries = black_box_reader.Slot(slot).entries
    return tuple(
        TracedCall(
            one.op, one.group, one.group_size, one.seq, one.t, one.returned if one.returned >= one.t else 0.0,
            one.file, one.line, one.function, one.numel, one.dtype,
        )
        for one in entries
        if begun <= one.t <= ended
    )  # fmt: skip


def events(trace: RankTrace) -> RankEvents:
    """The events of a rank as torch wrote them.

    Raises:
        OSError, ValueError: they cannot be read.
    """
    try:
        document = json.loads(regular.read(trace.path, MOST_EVENTS, trace.owner))
        base = document.get("baseTimeNanoseconds", 0)
        found = [one for one in document["traceEvents"] if isinstance(one, dict)]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is no trace: {error!r}") from error
    if type(base) is not int or not 0 <= base < LATEST:
        raise ValueError("its times are none")
    about = document.get("distributedInfo")
    groups = about.get("pg_count") if isinstance(about, dict) else None
    return RankEvents(base, list(_sound(found)), groups if type(groups) is int else 0)


def _sound(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in found:
        times = (one.get("ts", 0), one.get("dur", 0))
        if all(type(each) in (int, float) and abs(each) < LATEST for each in times) and isinstance(
            one.get("name"), str
        ):
            yield one

"""What ranks have left of a trace in `traces/NUMBER` of a run directory (`worker.tracing`), checked as it is read:
behind this module each time is a number of seconds that a node may have been up, and each event of the Trace Event
Format has what torch writes, in its types.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from dataclasses import dataclass
from typing import Any

from safelaunch import black_box, black_box_reader
from safelaunch.codec import LONGEST, ShapeError, checked
from safelaunch.model.traces import RankEvents, RankTrace, StepMark, TracedCall
from safelaunch.open_folder import OpenFolder
from safelaunch.shortened import shortened

FOLDER = "traces"  # in a run directory
META, EVENTS, CALLS = "meta", "json", "calls"
MOST_META = 1 << 20
MOST_EVENTS = 512 << 20  # bytes of one rank's trace: ten times that as objects
BLOCK = 1 << 20
LATEST = 1 << 62  # of numbers that a file may hold
LATEST_S = 1e10  # of clocks of nodes, and of what is counted in seconds: 300 years
LARGEST_PID = 1 << 31
LONGEST_NAME = 4096  # characters of the name of an event
DEEPEST = 8  # of what stands in the arguments of an event
_TEXT, _NUMBER, _NAME_OR_NUMBER = (str,), (int, float), (int, str)
# What torch writes of an event (Trace Event Format), and of which types; more is not taken over.
FIELDS: dict[str, tuple[type, ...]] = {
    "ph": _TEXT, "cat": _TEXT, "name": _TEXT, "pid": _NAME_OR_NUMBER, "tid": _NAME_OR_NUMBER, "ts": _NUMBER,
    "dur": _NUMBER, "id": _NAME_OR_NUMBER, "bp": _TEXT, "s": _TEXT, "args": (dict,),
}  # fmt: skip


@dataclass(frozen=True)
class _Said:
    """What a rank says of its trace."""

    pid: int = 0
    thread: int = 0
    cuda: bool = False
    steps: tuple[tuple[int, float, int, float, float], ...] = ()  # as in `StepMark`
    write_s: float = 0.0
    interrupted: bool = False
    missing: str = ""


def name(rank: int, what: str) -> str:
    """The name of a rank's file."""
    return f"rank_{rank:03d}.{what}"


def read(run: OpenFolder, number: int, rank: int, host: str) -> RankTrace:
    """The trace of a rank, without its events; `missing` says why there is none.

    Args:
        run: the run directory of its node; what its owner has written counts.
        number: of the trace.
        rank: whose.
        host: of its node.
    """
    nothing, owner = RankTrace(rank, host), run.owner

    def path(what: str) -> str:
        return os.path.join(run.path, FOLDER, str(number), name(rank, what))

    try:
        said = checked(_Said, json.loads(run.read(path(META), MOST_META, owner)))
        if said.missing:
            return dataclasses.replace(nothing, missing=said.missing)
        if len(said.steps) < 2:
            return dataclasses.replace(nothing, missing="it has recorded no step")
        marks = _marks(said)
        slot = run.read(path(CALLS), black_box.SLOT, owner)
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
        marks=marks,
        calls=calls,
        cuda=said.cuda,
        write_s=said.write_s,
        interrupted=said.interrupted,
    )


def remove(run: OpenFolder, number: int, rank: int) -> None:
    """Remove what a rank has left: what has been merged is not kept twice."""
    for what in (EVENTS, CALLS, META):
        run.remove(os.path.join(run.path, FOLDER, str(number), name(rank, what)))


def _marks(said: _Said) -> tuple[StepMark, ...]:
    """When its steps were complete.

    Raises:
        ValueError: they have no order, or times that no node has.
    """
    marks = tuple(StepMark(*one) for one in said.steps)
    seconds = [said.write_s, *(each for one in marks for each in (one.t, one.loading, one.waited))]
    counts = [each for one in marks for each in (one.count, one.wall_ns)]
    if not all(0 <= each < LATEST_S for each in seconds) or not all(0 <= each < LATEST for each in counts):
        raise ValueError("its times are none")
    if not 0 <= said.pid < LARGEST_PID:
        raise ValueError("its pid is none")
    pairs = list(itertools.pairwise(marks))
    if not all(one.t <= other.t and one.count <= other.count for one, other in pairs) or marks[0].t == marks[-1].t:
        raise ValueError("its steps go backwards, or took no time")
    return marks


def _calls(slot: bytes, begun: float, ended: float) -> tuple[TracedCall, ...]:
    entries = black_box_reader.Slot(slot).entries
    return tuple(
        TracedCall(
            one.op, one.group, one.group_size, one.seq, one.t,
            one.returned if one.t <= one.returned < LATEST_S else 0.0,
            one.file, one.line, one.function, one.numel, one.dtype,
        )
        for one in entries
        if begun <= one.t <= ended
    )  # fmt: skip


def events(run: OpenFolder, trace: RankTrace) -> RankEvents:
    """The events of a rank as torch wrote them.

    Raises:
        OSError, ValueError: they cannot be read.
        MemoryError: there are more than there is room for.
    """
    try:
        document = json.loads(_whole(run, trace.path))
    except RecursionError as error:
        raise ValueError(f"it is no trace: {error}") from error
    found = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise ValueError("it is no trace: it has no list of events")
    base = document.get("baseTimeNanoseconds", 0)
    if type(base) is not int or not 0 <= base < LATEST:
        raise ValueError("its times are none")
    about = document.get("distributedInfo")
    groups = about.get("pg_count") if isinstance(about, dict) else None
    for at, one in enumerate(found):  # in its place: what has been read is let go
        found[at] = _event(one)
    return RankEvents(base, [one for one in found if one is not None], groups if type(groups) is int else 0)


def _whole(run: OpenFolder, path: str) -> str:
    """The text of a file of JSON. A file may have holes of any size, which read as null bytes and take no room on its
    disk: the first one ends it."""
    data = bytearray()
    with open(run.open(path), "rb") as file:
        if os.fstat(file.fileno()).st_uid != run.owner:
            raise PermissionError(f"{path} belongs to another user")
        while block := file.read(BLOCK):
            data += block
            if b"\0" in block:
                raise ValueError("it is no trace: it has null bytes")
            if len(data) > MOST_EVENTS:
                raise ValueError(f"it has more than {MOST_EVENTS >> 20} MiB")
    return data.decode("utf-8", "replace")


def _event(found: Any) -> dict[str, Any] | None:
    """An event as torch writes one; None for what is none."""
    if type(found) is not dict:
        return None
    made: dict[str, Any] = {}
    for key, value in found.items():
        kinds = FIELDS.get(key)
        if kinds is not None:
            if type(value) not in kinds:
                return None
            made[key] = shortened(value, LONGEST_NAME) if type(value) is str else value
    if not {"ph", "name"} <= made.keys() or ("ts" not in made and made["ph"] != "M"):
        return None
    if not (abs(made.setdefault("ts", 0)) < LATEST and 0 <= made.get("dur", 0) < LATEST):
        return None
    if "args" in made:
        made["args"] = _plain(made["args"])
    return made


def _plain(value: Any, depth: int = 0) -> Any:
    """Without numbers that JSON has none of, and without what is deep or long: one may be as deep as a stack."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is str:
        return shortened(value, LONGEST)
    if type(value) is dict:
        return {key: _plain(one, depth + 1) for key, one in value.items()} if depth < DEEPEST else None
    if type(value) is list:
        return [_plain(one, depth + 1) for one in value] if depth < DEEPEST else None
    return value

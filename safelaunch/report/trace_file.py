"""One file of the traces of all ranks, as Perfetto and chrome://tracing open it: a process for each rank, with its
threads, its GPUs' streams, its steps and its collectives, on one clock.
"""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from safelaunch import files, redaction
from safelaunch.model.traces import RankEvents, RankTrace
from safelaunch.report.trace_facts import GPU, Facts, facts

LEVEL = 3  # of gzip: a tenth of the time of 9, and a fifth more bytes
OURS = 1 << 30  # thread numbers of ours begin here, above those of the kernel (4,194,304 at most)
STREAMS = OURS + 100
KEPT = frozenset("XBEibnesftCM")  # kinds of events
FLOW = frozenset("stfbne")  # those with an id, which each rank counts for itself
NODE = 10_000_000  # added to pids that two nodes have both
SINGLE = frozenset({"thread_name", "thread_sort_index"})  # what is taken over of what is said of threads


def write(
    path: str,
    traces: Sequence[RankTrace],
    read: Callable[[RankTrace], RankEvents],
    about: Mapping[str, Any],
) -> tuple[list[Facts], dict[int, str]]:
    """Write the file, whole or not at all; returns what was measured of each rank, and why others could not be read.

    Args:
        path: of the file; it is compressed (gzip), which Perfetto reads.
        traces: of the ranks, none of which is missing.
        read: gives the events of one.
        about: the run, without secrets.

    Raises:
        OSError: it cannot be written.
    """
    measured: list[Facts] = []
    unread: dict[int, str] = {}
    pids = _pids(traces)
    start = min(trace.begun for trace in traces)

    def fill(out: IO[str]) -> None:
        out.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps(dict(about)) + ', "traceEvents": [\n')
        first = True
        for trace in traces:
            try:
                events = read(trace)
            except (OSError, ValueError) as error:
                unread[trace.rank] = str(error)
                continue
            for event in (
                *_of_ours(trace, pids[trace.rank], start),
                *_of_torch(trace, events, pids[trace.rank], start),
            ):
                out.write(("" if first else ",\n") + json.dumps(event))
                first = False
            measured.append(facts(trace, events))
        out.write("\n]}\n")

    files.write_through(path, lambda file: _compressed(file, fill))
    return measured, unread


def _compressed(file: IO[bytes], fill: Callable[[IO[str]], None]) -> None:
    with (
        gzip.GzipFile("", "wb", LEVEL, file, 0) as packed,
        io.TextIOWrapper(packed, "ascii", write_through=True) as out,
    ):
        fill(out)


def _pids(traces: Iterable[RankTrace]) -> dict[int, int]:
    """The number of each rank's process in the file: its pid, where no other has the same."""
    taken: set[int] = set()
    found = {}
    for trace in traces:
        pid = trace.pid
        while pid in taken:
            pid += NODE
        taken.add(pid)
        found[trace.rank] = pid
    return found


def _of_ours(trace: RankTrace, pid: int, start: float) -> Iterator[dict[str, Any]]:
    """The rank's name, its steps, and its collectives with their lines."""

    def us(t: float) -> float:
        return round((t + trace.offset_s - start) * 1e6, 3)

    def said(what: str, tid: int = 0, /, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    yield said("process_name", name=f"rank {trace.rank}")
    yield said("process_labels", labels=f"{redaction.text(trace.host)}, pid {trace.pid}")
    yield said("process_sort_index", sort_index=trace.rank)
    for tid, name in enumerate(("steps", "collectives that Python calls")):
        yield said("thread_name", OURS + tid, name=name)
        yield said("thread_sort_index", OURS + tid, sort_index=-2 + tid)
    for before, after in itertools.pairwise(trace.marks):
        spent = {"s in loaders": after.loading - before.loading, "s in collectives": after.waited - before.waited}
        step = {"ph": "X", "cat": "step", "name": f"step {after.count}", "pid": pid, "tid": OURS}
        yield {**step, "ts": us(before.t), "dur": round((after.t - before.t) * 1e6, 3), "args": spent}
    for call in trace.calls:
        name = _shown(f"{call.op} at {call.place}" if call.place else call.op)
        args = {
            "group": _shown(call.group), "number": call.seq, "ranks": call.group_size, "file": _shown(call.file),
            "line": call.line, "function": _shown(call.function), "elements": call.numel, "dtype": _shown(call.dtype),
        }  # fmt: skip
        event = {"cat": "collective", "name": name, "pid": pid, "tid": OURS + 1, "ts": us(call.t), "args": args}
        if call.returned:
            yield {"ph": "X", **event, "dur": round((call.returned - call.t) * 1e6, 3)}
        else:
            yield {"ph": "i", "s": "t", **event}  # issued, and waited for later, or never


def _of_torch(trace: RankTrace, events: RankEvents, pid: int, start: float) -> Iterator[dict[str, Any]]:
    """What torch has written, on the common clock."""
    first = trace.marks[0]
    # In whole ns: the time of day has more digits than a float.
    offset_us = (round((trace.begun - start) * 1e9) + events.base_ns - first.wall_ns) / 1e3
    streams: dict[tuple[Any, Any], int] = {}
    for event in events.found:
        kind, owner = event.get("ph"), event.get("pid")
        if kind not in KEPT or type(owner) is not int or (kind == "M" and event["name"] not in SINGLE):
            continue
        made = {**event, "name": _shown(event["name"]), "pid": pid, "ts": round(event.get("ts", 0) + offset_us, 3)}
        if owner != trace.pid or event.get("cat") in GPU:
            stream = (owner, event.get("tid"))
            made["tid"] = streams.setdefault(stream, STREAMS + len(streams))
        if kind in FLOW and type(event.get("id")) is int:
            made["id"] = (event["id"] & 0xFFFFFFFF) + (trace.rank << 32)
        if isinstance(args := event.get("args"), dict):
            made["args"] = {str(key): _shown(value) if isinstance(value, str) else value for key, value in args.items()}
        yield made


@functools.lru_cache(maxsize=1 << 16)
def _shown(text: str) -> str:
    """A name without what looks like a secret: a script may put anything into one."""
    return redaction.text(text)

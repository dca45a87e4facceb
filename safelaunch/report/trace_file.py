"""One file of the traces of all ranks, as Perfetto and chrome://tracing open it: a process for each rank, with its
threads, its GPUs' streams, its steps and its collectives, on one clock.
"""

from __future__ import annotations

import contextlib
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
LONG_NUMBER = 123_456_789
LONG = 1000  # characters of arguments that are looked at anew for each event
SINGLE = frozenset({"thread_name", "thread_sort_index"})  # what is taken over of what is said of threads


def write(
    path: str,
    traces: Sequence[RankTrace],
    read: Callable[[RankTrace], RankEvents],
    about: Mapping[str, Any],
) -> tuple[list[Facts], dict[int, str]]:
    """Write the file, whole or not at all; returns what was measured of each rank, and why others could not be read.
    Where none could be read, there is no file.

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
    if not traces:
        return measured, unread
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
            except MemoryError:
                unread[trace.rank] = "it has more events than there is room for"
                continue
            for event in (
                *_of_ours(trace, pids[trace.rank], start),
                *_of_torch(trace, events, pids[trace.rank], start),
            ):
                out.write(("" if first else ",\n") + json.dumps(event))
                first = False
            measured.append(facts(trace, events))
        out.write("\n]}\n")
        if not measured:
            raise _NothingError

    with contextlib.suppress(_NothingError):
        files.write_through(path, lambda file: _compressed(file, fill))
    return measured, unread


class _NothingError(Exception):
    """There is nothing to be written."""


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
        made = {**event, "pid": pid, "ts": round(event.get("ts", 0) + offset_us, 3)}
        made |= {key: _shown(value) for key, value in event.items() if type(value) is str}
        if owner != trace.pid or event.get("cat") in GPU:
            stream = (owner, event.get("tid"))
            made["tid"] = streams.setdefault(stream, STREAMS + len(streams))
        if kind in FLOW and type(event.get("id")) is int:
            made["id"] = (event["id"] & 0xFFFFFFFF) + (trace.rank << 32)
        if isinstance(args := event.get("args"), dict):
            made["args"] = _args(args)
        yield made


def _args(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an event without what looks like a secret, by their names too. Most are numbers, which differ
    from event to event; what is left of the others is often the same."""
    plain = {key: value for key, value in args.items() if _is_plain(key, value)}
    if len(plain) == len(args):
        return args
    told = {key: value for key, value in args.items() if key not in plain}
    text = json.dumps(told)
    found: dict[str, Any] = json.loads(_document(text)) if len(text) < LONG else redaction.document(told)
    return plain | found


def _is_plain(key: str, value: object) -> bool:
    """Whether a number can be no secret, whatever is beside it."""
    return isinstance(value, (int, float, type(None))) and _is_harmless(key)


@functools.lru_cache(maxsize=1 << 12)
def _is_harmless(key: str) -> bool:
    return bool(redaction.document({key: LONG_NUMBER}) == {key: LONG_NUMBER})


@functools.lru_cache(maxsize=1 << 14)
def _document(text: str) -> str:
    return json.dumps(redaction.document(json.loads(text)))


@functools.lru_cache(maxsize=1 << 16)
def _shown(text: str) -> str:
    """A name without what looks like a secret: a script may put anything into one."""
    return redaction.text(text)

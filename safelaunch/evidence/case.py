"""From evidence to a case: the facts of every rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from safelaunch.codec import from_json
from safelaunch.evidence import frames
from safelaunch.evidence.device_calls import settled, with_states
from safelaunch.evidence.stack_text import stack_text
from safelaunch.model import (
    Case,
    Child,
    Collective,
    Endpoint,
    Evidence,
    ExitCall,
    Gap,
    GroupProgress,
    Incident,
    Kernel,
    LoaderPass,
    Location,
    Phase,
    ProcessGroup,
    PyError,
    RankDevice,
    RankFacts,
    Reducer,
    Rendezvous,
    SourceLine,
    Stack,
    StreamProgress,
    ThreadCall,
    WorkerGroup,
    WorkerProcess,
)

__all__ = ["build", "facts", "stack_text"]

# Sources that have nothing of a rank in good order.
NO_GAP = {"error", "groups", "native", "device", "self_report", "log", "sockets"}
SWITCHES = "voluntary_ctxt_switches"
OF_THE_LIVING = {"kernel", "stack", "recorder"}

Sources = dict[str, Evidence]


def build(
    incident: Incident,
    group: WorkerGroup,
    evidence: Iterable[Evidence],
    host: str,
    oom_kills: int | None,
    *,
    earlier: Iterable[Evidence] = (),
    source: Iterable[SourceLine] = (),
    now: float | None = None,
) -> Case:
    """Assemble the case of one node's worker group. `earlier` is the evidence of a look before, `now` CLOCK_MONOTONIC
    of this one."""
    found, before = _by_rank(group, evidence), _by_rank(group, earlier)
    ranks = settled([facts(worker, found[worker.rank], before[worker.rank], now) for worker in group.workers])
    groups = dict.fromkeys(
        from_json(ProcessGroup, item) for sources in found.values() for item in _data(sources, "groups", "groups")
    )
    origin: Literal["run", "joined"] = "joined" if group.joined else "run"
    return Case(incident, host, group.world_size, ranks, oom_kills, tuple(groups), tuple(source), now, origin)


def facts(
    worker: WorkerProcess, sources: Sources, before: Sources | None = None, now: float | None = None
) -> RankFacts:
    """The facts of one rank from what the collectors found, and found in the look `before`."""
    before = before or {}
    names = ("error", "fault", "collectives", "kernel", "self_report")
    error, fault, box, kernel, word = (_all(sources, name) for name in names)
    recorder = sources.get("recorder")
    recorded = None
    if recorder is not None and recorder.data is not None:
        recorded = tuple(from_json(Collective, item) for item in recorder.data.get("collectives", []))
    own = tuple(from_json(Collective, item) for item in box.get("collectives", []))
    stream = from_json(StreamProgress, word["stream"]) if word.get("stream") else None
    collectives = with_states(own, recorded or (), stream)
    thread = collectives[-1].thread if collectives else 0
    stacks = _stacks(worker, sources)
    stack = frames.chosen(stacks, thread, worker.pid)
    # The pulse stands still from when it was read, not from when somebody thinks about it.
    seen = None if now is None else min(now, box.get("t", now))
    return RankFacts(
        rank=worker.rank,
        local_rank=worker.local_rank,
        pid=worker.pid,
        exit=worker.exit,
        error=_exception(error),
        fault=frames.parse_fault(fault["text"]) if fault.get("text") else None,
        stack=stack,
        exit_call=from_json(ExitCall, box["exit_call"]) if box.get("exit_call") else None,
        program=str(box.get("program") or ""),
        shut_down=box.get("shut_down"),
        raised=bool(box.get("raised")),
        ended=bool(box.get("ended")),
        recording=bool(box.get("recording", True)),
        collectives=collectives,
        state=str(kernel.get("state", "")),
        watched=bool(fault) or bool(box),
        missing=_missing(worker, sources),
        stacks=stacks + frames.from_py_spy(_data(sources, "native", "threads"), native=True),
        earlier=frames.chosen(_stacks(worker, before), stack.thread if stack else thread, worker.pid),
        recorded=recorded,
        progress=tuple(from_json(GroupProgress, item) for item in _data(sources, "recorder", "progress")),
        kernel=kernel_facts(kernel, _all(before, "kernel")) if kernel else None,
        threads=tuple(ThreadCall(int(one["tid"]), kernel_facts(one)) for one in kernel.get("threads", [])),
        children=tuple(_child(child, _all(sources, "stack")) for child in kernel.get("children", [])),
        phases=tuple(from_json(Phase, item) for item in box.get("phases", [])),
        beat_age_s=_age(seen, box.get("beat")),
        quiet_s=_age(seen, box.get("progress")),
        step=int(box.get("steps", 0)),
        stepped=box.get("stepped"),
        batch=int(box.get("batches", 0)),
        exhausted=box.get("exhausted"),
        overwritten=bool(_all(sources, "recorder").get("overwritten")),
        last_lines=tuple(_all(sources, "log").get("lines", ())),
        loaders=tuple(from_json(LoaderPass, item) for item in box.get("loaders", [])),
        handling=_exception(word.get("handling")),
        store_keys=tuple(word.get("store_keys") or ()),
        store_wants=tuple(word.get("store_wants") or ()),
        store_polls=tuple(word["store_polls"]) if word.get("store_polls") is not None else None,
        looks_at=tuple((name, path) for name, path in word.get("looks_at") or ()),
        new_groups=tuple(tuple(ranks) for ranks in _all(sources, "groups").get("asked", ())),
        meets=from_json(Rendezvous, _all(sources, "groups")["meets"]) if _all(sources, "groups").get("meets") else None,
        tasks=tuple(_task(one) for one in word.get("tasks") or ()),
        stream=stream,
        lost_thread=_exception(word.get("lost_thread")),
        device=from_json(RankDevice, _all(sources, "device")) if _all(sources, "device") else None,
        reducers=tuple(
            from_json(Reducer, item) for item in error.get("reducers") or _data(sources, "self_report", "reducers")
        ),
    )


def _task(said: dict[str, Any]) -> Stack:
    return Stack(tuple(from_json(Location, frame) for frame in said["frames"]), "asyncio", name=str(said["name"]))


def _by_rank(group: WorkerGroup, evidence: Iterable[Evidence]) -> dict[int, Sources]:
    by_rank: dict[int, Sources] = {worker.rank: {} for worker in group.workers}
    for item in evidence:
        if item.rank in by_rank:
            by_rank[item.rank].setdefault(item.source, item)
    return by_rank


def _all(sources: Sources, name: str) -> dict[str, Any]:
    item = sources.get(name)
    return (item.data or {}) if item is not None else {}


def _data(sources: Sources, name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _all(sources, name).get(key) or []
    return found


def _exception(data: dict[str, Any] | None) -> PyError | None:
    return from_json(PyError, data) if data else None


def _missing(worker: WorkerProcess, sources: Sources) -> tuple[Gap, ...]:
    """What could not be had; the stack of a rank that has ended is not missed."""
    gaps = tuple(
        Gap(item.source, item.unavailable)
        for item in sources.values()
        if item.unavailable and item.source not in NO_GAP and not (worker.exit and item.source in OF_THE_LIVING)
    )
    stack = _all(sources, "stack")
    if stack.get("py_spy") and not stack.get("faulthandler"):  # only the stacks of children could be had
        gaps += (Gap("stack", stack["py_spy"]),)
    return gaps


def _stacks(worker: WorkerProcess, sources: Sources) -> tuple[Stack, ...]:
    data = _all(sources, "stack")
    if data.get("faulthandler"):
        return frames.from_faulthandler(data["faulthandler"], worker.pid)
    return frames.from_py_spy(data.get("threads") or [])


def kernel_facts(data: dict[str, Any], before: dict[str, Any] | None = None) -> Kernel:
    """What `evidence.kernel` has seen of a thread; with what was used since it had looked `before`, of a process."""
    tracer = str(data.get("TracerPid") or "0")
    used: dict[str, Any] = {}
    if before and {"t", "cpu_s", "io_bytes"} <= before.keys() & data.keys():
        # A child that ends between the looks without being waited for takes its share with it.
        used = {name: max(0, data[name] - before[name]) for name in ("cpu_s", "io_bytes")}
        used["since_s"] = data["t"] - before["t"]
        counts = [str(look.get(SWITCHES, "")) for look in (before, data)]
        if all(count.isdecimal() for count in counts):
            used["switches"] = int(counts[1]) - int(counts[0])
    return Kernel(
        state=str(data.get("state", "")),
        wchan=data.get("wchan", ""),
        syscall=data.get("syscall", ""),
        file=data.get("file", ""),
        tracer=int(tracer) if tracer.isdecimal() else 0,
        filesystem=data.get("filesystem", ""),
        mount=data.get("mount", ""),
        peer=from_json(Endpoint, data["peer"]) if data.get("peer") else None,
        beside=tuple(data.get("beside", ())),
        **used,
    )


def _child(data: dict[str, Any], stack: dict[str, Any]) -> Child:
    pid = int(data["pid"])
    stacks = frames.from_py_spy((stack.get("children") or {}).get(str(pid), []))
    return Child(pid, data.get("name", ""), kernel_facts(data), frames.chosen(stacks, 0, pid), data.get("status"))


def _age(now: float | None, t: float | None) -> float | None:
    return max(0.0, now - t) if now is not None and t else None

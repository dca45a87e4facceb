"""From evidence to a case: the facts of every rank, and the files of an incident's folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from safelaunch.codec import from_json
from safelaunch.model import (
    Case,
    Collective,
    Evidence,
    ExitCall,
    Incident,
    Location,
    PyError,
    RankFacts,
    Stack,
    WorkerGroup,
    WorkerProcess,
)

FAULT_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')


def build(
    incident: Incident, group: WorkerGroup, evidence: Iterable[Evidence], host: str, oom_kills: int | None
) -> Case:
    """Assemble the case of one node's worker group."""
    by_rank: dict[int, dict[str, Evidence]] = {worker.rank: {} for worker in group.workers}
    for item in evidence:
        by_rank[item.rank].setdefault(item.source, item)
    ranks = tuple(facts(worker, by_rank[worker.rank]) for worker in group.workers)
    return Case(incident, host, group.world_size, ranks, oom_kills)


def facts(worker: WorkerProcess, sources: dict[str, Evidence]) -> RankFacts:
    """The facts of one rank from what the collectors found."""

    def data(source: str) -> dict[str, Any]:
        item = sources.get(source)
        return (item.data or {}) if item is not None else {}

    error, fault, box = data("error"), data("fault"), data("collectives")
    missing = tuple(
        f"{item.source}: {item.unavailable}"
        for item in sources.values()
        if item.unavailable and item.source != "error" and not (worker.exit and item.source in ("kernel", "stack"))
    )
    return RankFacts(
        rank=worker.rank,
        local_rank=worker.local_rank,
        pid=worker.pid,
        exit=worker.exit,
        error=from_json(PyError, error) if error else None,
        fault=parse_fault(fault["text"]) if fault.get("text") else None,
        stack=parse_py_spy(data("stack").get("threads", [])),
        exit_call=from_json(ExitCall, box["exit_call"]) if box.get("exit_call") else None,
        shut_down=box.get("shut_down"),
        raised=bool(box.get("raised")),
        collectives=tuple(from_json(Collective, item) for item in box.get("collectives", [])),
        state=str(data("kernel").get("state", "")),
        watched=bool(fault),
        missing=missing,
    )


def parse_fault(text: str) -> Stack:
    """The stack of the thread that crashed. faulthandler marks it `Current thread`; a thread without Python state
    is not listed, and then the main thread, which comes last, is the one that tells most."""
    blocks = re.split(r"^(?=(?:Current thread|Thread) 0x)", text, flags=re.MULTILINE)[1:] or [text]
    block = next((block for block in blocks if block.startswith("Current thread")), blocks[-1])
    frames = tuple(
        Location(match["file"], int(match["line"]), match["function"])
        for line in block.splitlines()
        if (match := FAULT_FRAME.match(line))
    )
    return Stack(frames, "faulthandler", text)


def parse_py_spy(threads: list[dict[str, Any]]) -> Stack | None:
    """The main thread's stack, with the text of all threads."""
    if not threads:
        return None
    main = next((thread for thread in threads if thread.get("thread_name") == "MainThread"), threads[0])
    frames = tuple(Location(f["filename"], int(f["line"]), f["name"]) for f in main["frames"])
    blocks = []
    for thread in threads:
        state = "active" if thread.get("active") else "idle"
        lines = [f"Thread {thread.get('os_thread_id') or thread.get('thread_id')} ({state}): {thread['thread_name']}"]
        lines += [f"    {frame['name']} ({frame['filename']}:{frame['line']})" for frame in thread["frames"]]
        blocks.append("\n".join(lines))
    return Stack(frames, "py-spy", "\n".join(blocks) + "\n")


def stack_text(facts: RankFacts) -> str:
    """What stands in a rank's `stack.txt`: the best stack there is, and where it comes from."""
    parts = []
    if facts.error is not None:
        parts.append(f"# uncaught exception, as the rank recorded it\n{facts.error.traceback}")
    if facts.fault is not None:
        parts.append(f"# fatal signal, by faulthandler\n{facts.fault.text}")
    if facts.stack is not None:
        parts.append(f"# all threads while the rank was alive, by py-spy\n{facts.stack.text}")
    if not parts:
        parts.append("# no stack: " + ("; ".join(facts.missing) or "the rank ended without leaving one") + "\n")
    return "\n".join(parts)

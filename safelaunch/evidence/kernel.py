"""What the kernel says of a living rank and of the processes below it: /proc alone, and nothing is disturbed."""

from __future__ import annotations

import os
import time
from typing import Any

from safelaunch import procfs
from safelaunch.codec import to_json
from safelaunch.evidence import peer_endpoints, proc_tasks, syscalls
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "kernel"
CHILDREN, THREADS = 32, 64
POOLS = {"futex", "epoll_wait", "epoll_pwait"}  # where threads of libraries wait for work
HELD = "DTt"  # states of a thread that does not get on by itself
_TICK = os.sysconf("SC_CLK_TCK")
_IO = ("rchar:", "wchar:", "read_bytes:", "write_bytes:")


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """Where the rank's main thread, its held threads (`threads`; where it waits for one of its own, also those that
    are in a call) and its `children` are in the kernel, what is at the other end of their calls (`peer`), whether a
    tracer is attached, and what all of them used since their start (`cpu_s`, `io_bytes`, at `t`)."""
    begun = time.monotonic()
    process = procfs.read(worker.pid)
    if process is None or process.start != worker.start or process.state in "ZX":
        return Evidence(SOURCE, worker.rank, unavailable="the process had ended")
    held, memory = _held(worker.pid)
    data: dict[str, Any] = _look(worker.pid, worker.pid, memory)
    for line in procfs.lines(proc_tasks.text(worker.pid, "status")):
        if line.startswith(("TracerPid:", "Threads:", "VmRSS:", "VmHWM:", "voluntary_ctxt_switches:")):
            name, _, value = line.partition(":")
            data[name] = value.strip()
    below = proc_tasks.below(worker.pid)
    data |= {"t": time.monotonic(), **_usage([worker.pid, *(child.pid for child in below)])}
    telling = [*held, *_elsewhere(worker.pid, held)] if data["syscall"] == "futex" else held
    data["threads"] = [{"tid": tid, **_look(worker.pid, tid, memory)} for tid in telling[:THREADS]]
    data["children"] = []
    # Those that the kernel holds come first, should there be more than we show.
    for child in sorted(below, key=lambda child: (child.state not in HELD, child.pid))[:CHILDREN]:
        if time.monotonic() > deadline:
            break
        shown = _look(child.pid, child.pid, _held(child.pid)[1])
        if shown["state"]:
            ended = {"status": _status(child.pid)} if shown["state"] == "Z" else {}
            data["children"].append({"pid": child.pid, "ppid": child.ppid, **shown, **ended})
    return Evidence(SOURCE, worker.rank, data, elapsed_s=time.monotonic() - begun)


def _status(pid: int) -> int | None:
    """How a process has ended that nobody has waited for: the last field of its stat (proc(5), exit_code)."""
    words = proc_tasks.text(pid, "stat").split()
    return int(words[-1]) if words and words[-1].isdecimal() else None


def _look(pid: int, tid: int, memory: bool) -> dict[str, Any]:
    seen = proc_tasks.look(pid, tid, memory=memory)
    try:
        peer, beside = peer_endpoints.of(pid, seen), peer_endpoints.beside(pid, seen)
        return {**seen, "peer": to_json(peer), "beside": beside}
    except (OSError, ValueError, LookupError):  # what stands in /proc differs between kernels
        return seen


def _elsewhere(pid: int, held: list[int]) -> list[int]:
    """The threads besides the main one that are in a call which says what they wait for."""
    found = []
    for tid in proc_tasks.threads(pid)[:THREADS]:
        number = proc_tasks.text(pid, f"task/{tid}/syscall").split(" ", 1)[0]
        if tid not in (pid, *held) and number.isdecimal() and syscalls.name(int(number)) not in POOLS:
            found.append(tid)
    return found


def _held(pid: int) -> tuple[list[int], bool]:
    """The threads that do not get on by themselves, and whether the memory can be read without waiting: none of them
    holds the lock of the address space."""
    states = {tid: proc_tasks.state(pid, tid) for tid in proc_tasks.threads(pid)}
    waiting = [proc_tasks.text(pid, f"task/{tid}/syscall").split(" ", 1)[0] for tid in states if states[tid] == "D"]
    # In no call (-1), a page fault has the lock; and what we may not see could have it.
    memory = all(call.isdecimal() and syscalls.name(int(call)) in syscalls.LEAVE_MEMORY for call in waiting)
    return [tid for tid in states if states[tid] in HELD], memory


def _usage(pids: list[int]) -> dict[str, Any]:
    """CPU seconds and bytes moved by these processes, with those of children that they have waited for."""
    ticks = moved = 0
    for pid in pids:
        stat = proc_tasks.text(pid, "stat")
        ticks += sum(int(field) for field in stat[stat.rfind(")") + 2 :].split()[11:15])
        words = proc_tasks.text(pid, "io").split()
        moved += sum(int(value) for name, value in zip(words[::2], words[1::2], strict=False) if name in _IO)
    return {"cpu_s": round(ticks / _TICK, 2), "io_bytes": moved}

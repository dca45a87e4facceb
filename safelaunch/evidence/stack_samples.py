"""Where ranks and their loader workers mostly stand: a few stacks of each, taken without stopping them."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Container, Iterable
from typing import Any

from safelaunch.evidence import frames, proc_tasks, spy
from safelaunch.model import Location, Stack, WorkerProcess
from safelaunch.model.slow import Standing
from safelaunch.user_code import is_user_code

EACH_S = 0.23  # not in step with what the program does every so often
DUMP_S = 1.0
WORKERS = 2  # of a rank's loader
LOOP = "/torch/utils/data/_utils/worker.py"  # what lies outside of it is what the worker was forked from
BACKWARD = re.compile(r"/torch/autograd/")
INSIDE = re.compile(r"/torch/distributed/|/torch/autograd/graph\.py$|/torch/utils/data/(?:dataloader|_utils/)")


def look(workers: Iterable[WorkerProcess], slow: Container[int], times: int, until: float) -> tuple[Standing, ...]:
    """So many looks at each rank and its loader workers, not beyond `until` (CLOCK_MONOTONIC). A dump takes py-spy a
    tenth of a second of a core: few ranks, few looks. The line of ranks that are `slow` is the one at which they stand
    more often than the others, who do the same work at the same time."""
    pids: dict[int, tuple[int, bool]] = {}
    for worker in workers:
        pids[worker.pid] = worker.rank, False
        names = {
            child.pid: proc_tasks.text(child.pid, "comm")
            for child in proc_tasks.below(worker.pid)
            if child.state != "Z"
        }
        for pid in sorted(pid for pid, name in names.items() if "pt_data_worker" in name or "python" in name)[:WORKERS]:
            pids[pid] = worker.rank, True
    seen: dict[int, list[Seen]] = {pid: [] for pid in pids}
    beside: dict[int, list[list[Stack]]] = {pid: [] for pid in pids}
    for _ in range(times):
        begun = time.monotonic()
        if begun + EACH_S > until:
            break
        states = {pid: _kernel(pid) for pid in pids}
        dumps = {pid: spy.Dump(pid, "--nonblocking") for pid in pids}
        for pid, dump in dumps.items():
            threads, _ = dump.result(min(until, begun + DUMP_S))
            stack = frames.chosen(frames.from_py_spy(threads), 0, pid) if threads else None
            seen[pid].append((stack, *states[pid]))
            active = [thread for thread in threads or () if thread.get("active")]
            beside[pid].append([each for each in frames.from_py_spy(active) if each.thread not in (0, pid)])
        time.sleep(max(0.0, min(begun + EACH_S, until) - time.monotonic()))
    found = {pid: _places(seen[pid], worker) for pid, (_, worker) in pids.items() if seen[pid]}
    usual: Counter[Location] = Counter()
    for pid, (places, _) in found.items():
        if pids[pid][0] not in slow and not pids[pid][1]:
            usual |= places
    nothing: Counter[Location] = Counter()
    stands = {
        pid: _standing(
            *pids[pid], seen[pid], *found[pid], usual if pids[pid][0] in slow and not pids[pid][1] else nothing
        )
        for pid in found
    }
    return tuple(dataclasses.replace(one, **_others(beside[pid])) for pid, one in stands.items())


def _others(looks: Iterable[Iterable[Stack]]) -> dict[str, Any]:
    """How many threads ran a line of the user's own, where most often, and in how many looks. What torch calls back in
    a backward pass is the main thread's own work."""
    at: Counter[Location] = Counter()
    threads: set[int] = set()
    taken = 0
    for stacks in looks:
        own = [stack for stack in stacks if not any(BACKWARD.search(frame.file) for frame in stack.frames)]
        places = [(stack.thread, _user_line(stack)) for stack in own]
        found = [(thread, place) for thread, place in places if place is not None]
        at.update(place for _, place in found)
        threads |= {thread for thread, _ in found}
        taken += bool(found)
    return {"others": len(threads), "beside": at.most_common(1)[0][0] if at else None, "taken": taken}


def _user_line(stack: Stack) -> Location | None:
    return next((frame for frame in stack.frames if is_user_code(frame.file)), None)


def _kernel(pid: int) -> tuple[str, str, str]:
    """State, system call and file of the main thread; nothing of its memory is read."""
    found = proc_tasks.look(pid, memory=False)
    return found["state"], found["syscall"], found["file"]


Seen = tuple[Stack | None, str, str, str]


def _places(seen: list[Seen], worker: bool) -> tuple[Counter[Location], int]:
    """At which lines of the user's program a process stood how often, and how often it waited inside of torch."""
    places: Counter[Location] = Counter()
    inside = 0
    for stack, *_ in seen:
        if stack is None:
            continue
        own = stack.frames
        if worker:
            own = own[: next((number for number, f in enumerate(own) if f.file.endswith(LOOP)), len(own))]
        user = next((number for number, f in enumerate(own) if is_user_code(f.file)), None)
        above = own[: user if user is not None else len(own)]
        if user is not None and (worker or not any(INSIDE.search(frame.file) for frame in above)):
            places[own[user]] += 1
        elif not worker or all(f.file.endswith(("/queues.py", "/connection.py", "/selectors.py")) for f in own):
            inside += 1  # a worker: it waits for its next task
        else:
            places[own[0]] += 1
    return places, inside


def _standing(
    rank: int, worker: bool, seen: list[Seen], places: Counter[Location], inside: int, usual: Counter[Location]
) -> Standing:
    calls: Counter[tuple[str, str]] = Counter((call, file) for _, _, call, file in seen if call)
    best = max(places, key=lambda place: (places[place] - usual[place], places[place]), default=None)
    call, file = calls.most_common(1)[0][0] if calls else ("", "")
    return Standing(
        rank,
        best,
        places[best] if best is not None else 0,
        sum(stack is not None for stack, *_ in seen),
        inside,
        sum(state == "R" for _, state, _, _ in seen),
        sum(state == "D" for _, state, _, _ in seen),
        worker,
        call,
        file,
    )

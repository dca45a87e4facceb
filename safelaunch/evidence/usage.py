"""What ranks and their node use, in numbers out of /proc and cgroups: cheap enough to be read while all is well.

One look at eight ranks of thirty threads takes about 3 ms; most of it are the threads' schedstat.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from safelaunch import procfs
from safelaunch.evidence import proc_tasks
from safelaunch.model import WorkerProcess
from safelaunch.model.slow import Busy, NodeUsage, Usage

THREADS = 64  # of a rank, the first ones: the main thread and those that compute are old
NOTABLE = 0.05  # cores
SHOWN = 16
_TICK = os.sysconf("SC_CLK_TCK")
_NS = 1e9
_STALL = re.compile(r"^some .* total=(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Load:
    """One look: counters of each rank and of the node, at `t` (CLOCK_MONOTONIC)."""

    t: float
    ranks: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    cpus: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    node: Mapping[str, float] = field(default_factory=dict)


def look(workers: Iterable[WorkerProcess], root: str = "/") -> Load:
    """One look at these ranks and at the node."""
    ranks, cpus = {}, {}
    for worker in workers:
        counters, allowed = _rank(worker)
        if counters:
            ranks[worker.rank], cpus[worker.rank] = counters, allowed
    return Load(time.monotonic(), ranks, cpus, _node(root))


def used(before: Load, after: Load) -> tuple[tuple[Usage, ...], NodeUsage]:
    """What was used between two looks."""
    seconds = max(after.t - before.t, 1e-6)
    ranks = tuple(
        _usage(rank, counters, before.ranks[rank], after.cpus.get(rank, ()), seconds)
        for rank, counters in after.ranks.items()
        if rank in before.ranks
    )
    return ranks, _node_usage(before.node, after.node, seconds)


def _usage(
    rank: int, after: Mapping[str, float], before: Mapping[str, float], cpus: tuple[int, ...], seconds: float
) -> Usage:
    def rate(name: str) -> float | None:
        return max(after[name] - before[name], 0.0) / seconds if name in after and name in before else None

    return Usage(
        rank,
        round(seconds, 3),
        rate("cpu") or 0.0,
        rate("queued"),
        rate("preempted"),
        rate("faults") or 0.0,
        rate("read"),
        int(after.get("swapped", 0)),
        cpus,
        None if (beside := rate("beside")) is None else min(beside, rate("cpu") or 0.0),
    )


def _rank(worker: WorkerProcess) -> tuple[dict[str, float], tuple[int, ...]]:
    stat = proc_tasks.text(worker.pid, "stat")
    fields = stat[stat.rfind(")") + 2 :].split()
    if len(fields) < 20 or int(fields[19]) != worker.start:
        return {}, ()
    found = {"faults": float(fields[9]), "cpu": (int(fields[11]) + int(fields[12])) / _TICK}
    threads = {tid: _times(worker.pid, tid) for tid in proc_tasks.threads(worker.pid)[:THREADS]}
    if threads.get(worker.pid):
        known = [times for times in threads.values() if times is not None]
        found["queued"] = sum(queued for _, queued in known)
        found["beside"] = sum(times[0] for tid, times in threads.items() if times is not None and tid != worker.pid)
    cpus: tuple[int, ...] = ()
    for line in procfs.lines(proc_tasks.text(worker.pid, "status")):
        name, _, value = line.partition(":")
        if name == "VmSwap":
            found["swapped"] = int(value.split()[0]) * 1024
        elif name == "nonvoluntary_ctxt_switches":
            found["preempted"] = float(value)
        elif name == "Cpus_allowed_list":
            cpus = cpu_list(value.strip())
    for line in procfs.lines(proc_tasks.text(worker.pid, "io")):
        if line.startswith("read_bytes:"):
            found["read"] = float(line.split()[1])
    return found, cpus


def _times(pid: int, tid: int) -> tuple[float, float] | None:
    """Seconds that a thread has run, and that it has waited for a CPU: the first numbers of its schedstat."""
    words = proc_tasks.text(pid, f"task/{tid}/schedstat").split()
    return (int(words[0]) / _NS, int(words[1]) / _NS) if len(words) > 1 else None


def cpu_list(text: str) -> tuple[int, ...]:
    """`0-2,8` as numbers."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


# ---------------------------------------------------------------------------------------------------- the node


def _node(root: str) -> dict[str, float]:
    found: dict[str, float] = {}
    words = _text(os.path.join(root, "proc/stat")).partition("\n")[0].split()
    if len(words) > 5 and words[0] == "cpu":
        # user nice system idle iowait irq softirq steal: guest time is in user already.
        times = [int(word) / _TICK for word in words[1:9]]
        found |= {"all": sum(times), "idle": times[3] + times[4]}
    for what in ("memory", "io"):
        match = _STALL.search(_text(os.path.join(root, "proc/pressure", what)))
        if match is not None:
            found[what] = int(match[1]) / 1e6
    throttled = _throttled(root)
    return found | ({"throttled": throttled} if throttled is not None else {})


def _node_usage(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> NodeUsage:
    def share(name: str, of: float = seconds) -> float | None:
        known = name in before and name in after
        return min(1.0, max(0.0, after[name] - before[name]) / of) if known and of > 0 else None

    idle = share("idle", after.get("all", 0.0) - before.get("all", 0.0))
    return NodeUsage(
        round(seconds, 3),
        os.cpu_count() or 0,
        None if idle is None else 1.0 - idle,
        share("throttled"),
        share("memory"),
        share("io"),
    )


def _throttled(root: str) -> float | None:
    """Seconds for which our cgroup's CPU limit has held somebody back. cgroup v2 counts `throttled_usec`, v1
    `throttled_time` in nanoseconds. The path may be one that this mount namespace does not show; then the mount's own
    root is the cgroup."""
    for line in procfs.lines(_text(os.path.join(root, "proc/self/cgroup"))):
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in ("", "cpu", "cpu,cpuacct") if controllers else ("", "unified"):
            for folder in (path.lstrip("/"), ""):
                text = _text(os.path.join(root, "sys/fs/cgroup", mount, folder, "cpu.stat"))
                match = re.search(r"^throttled_(usec|time) (\d+)$", text, re.MULTILINE)
                if match is not None:
                    return int(match[2]) / (1e6 if match[1] == "usec" else _NS)
    return None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ------------------------------------------------------------------------------------------- other processes


def ticks() -> dict[tuple[int, int], float]:
    """The CPU seconds of every process, by pid and start; 10 µs each."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        stat = proc_tasks.text(int(name), "stat")
        fields = stat[stat.rfind(")") + 2 :].split()
        if len(fields) >= 20:
            found[int(name), int(fields[19])] = (int(fields[11]) + int(fields[12])) / _TICK
    return found


def others(
    before: Mapping[tuple[int, int], float], after: Mapping[tuple[int, int], float], seconds: float, root: int
) -> tuple[Busy, ...]:
    """The processes that used CPU time in between and are not below `root`, the busiest first."""
    own = {root, *(process.pid for process in procfs.descendants(root, procfs.scan()))}
    return _busiest(before, {key: now for key, now in after.items() if key[0] not in own}, seconds)


def below(
    before: Mapping[tuple[int, int], float],
    after: Mapping[tuple[int, int], float],
    seconds: float,
    workers: Iterable[WorkerProcess],
) -> tuple[Busy, ...]:
    """The processes below these ranks that used CPU time in between, each with its rank, the busiest first."""
    scan = list(procfs.scan())
    found: list[Busy] = []
    for worker in workers:
        own = {process.pid for process in procfs.descendants(worker.pid, scan)}
        busy = _busiest(before, {key: now for key, now in after.items() if key[0] in own}, seconds)
        found += [replace(one, of=worker.rank) for one in busy]
    return tuple(sorted(found, key=lambda one: -one.cores))


def _busiest(
    before: Mapping[tuple[int, int], float], after: Mapping[tuple[int, int], float], seconds: float
) -> tuple[Busy, ...]:
    cores = {key: (now - before.get(key, now)) / seconds for key, now in after.items()}
    busiest: Sequence[tuple[int, int]] = sorted(cores, key=cores.__getitem__, reverse=True)[:SHOWN]
    found = []
    for pid, start in busiest:
        if cores[pid, start] < NOTABLE:
            break
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", proc_tasks.text(pid, "status"), re.MULTILINE)
        cpus = cpu_list(allowed[1]) if allowed else ()
        found.append(Busy(pid, proc_tasks.text(pid, "comm"), round(cores[pid, start], 2), cpus))
    return tuple(found)

"""What the control groups of this process, version 1 or 2, leave it: memory, CPU time, processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.preflight.machine.root import Root


@dataclass(frozen=True)
class Memory:
    """A limit and what is left of it, in bytes. `where` says who sets it. Page cache that the kernel would give up
    counts as left."""

    limit: int
    available: int
    where: str


@dataclass(frozen=True)
class _Version:
    mount: str
    controller: str  # field 2 of /proc/self/cgroup
    limit: str
    usage: str
    cache: str  # key in memory.stat


_VERSIONS = (
    _Version("/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"),
    _Version(
        "/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    ),
)


def memory(root: Root) -> list[Memory]:
    """The machine's memory, and every limit of a control group that is below it. Raises OSError or ValueError."""
    values = _table(root.read("/proc/meminfo").replace(":", ""))
    machine = Memory(values["MemTotal"] * 1024, values["MemAvailable"] * 1024, "this machine's memory")
    limits = [found for version in _VERSIONS for found in _limits(root, version)]
    # A control group without a limit holds `max` (version 2) or a number beyond any machine (version 1).
    return [machine, *(found for found in limits if found.limit < machine.limit)]


def _limits(root: Root, version: _Version) -> Iterator[Memory]:
    """The limit of our control group and of each above it: all of them hold."""
    for folder in _folders(root, version.mount, version.controller):
        try:
            text = root.read(f"{folder}/{version.limit}").strip()
            if text == "max":
                continue
            used = int(root.read(f"{folder}/{version.usage}")) - _table(root.read(f"{folder}/memory.stat")).get(
                version.cache, 0
            )
        except OSError:
            continue  # the root group has no limit file, and a container does not show what is above it
        yield Memory(int(text), max(0, int(text) - used), f"the memory limit in {folder}/{version.limit}")


@dataclass(frozen=True)
class Processes:
    """A limit of processes and threads, and how many there are. `where` says who sets it."""

    limit: int
    used: int
    where: str


def processes(root: Root) -> Iterator[Processes]:
    """Every limit of processes that our control groups set. Raises OSError where we cannot tell which they are."""
    for mount, controller in (("/sys/fs/cgroup", ""), ("/sys/fs/cgroup/pids", "pids")):
        for folder in _folders(root, mount, controller):
            try:
                text = root.read(f"{folder}/pids.max").strip()
                used = int(root.read(f"{folder}/pids.current"))
            except (OSError, ValueError):
                continue
            if text.isdecimal():
                yield Processes(int(text), used, f"{folder}/pids.max")


def cpus(root: Root) -> tuple[float, str] | None:
    """The lowest number of CPUs' time that our control groups allow, and where that is set; None without a limit.
    Raises OSError where we cannot tell which they are."""
    return min(_quotas(root), default=None)


def _quotas(root: Root) -> Iterator[tuple[float, str]]:
    for folder in _folders(root, "/sys/fs/cgroup", ""):
        yield from _quota(root, f"{folder}/cpu.max")
    for mount in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        for folder in _folders(root, mount, "cpu"):
            yield from _quota(root, f"{folder}/cpu.cfs_quota_us", f"{folder}/cpu.cfs_period_us")


def _quota(root: Root, *files: str) -> Iterator[tuple[float, str]]:
    """Microseconds of CPU time in a period of so many: in one file, or in two."""
    try:
        quota, period = " ".join(root.read(file).strip() for file in files).split()
    except (OSError, ValueError):
        return
    # No limit is `max` in version 2 and -1 in version 1.
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period), files[0]


def _folders(root: Root, mount: str, controller: str) -> Iterator[str]:
    """Our control group and those above it. `controller` is empty for version 2."""
    path = ""
    for line in procfs.lines(root.read("/proc/self/cgroup")):
        _, controllers, path_here = line.split(":", 2)
        if controller in controllers.split(","):
            path = path_here.rstrip("/")
    while path:
        yield mount + path
        path = path.rpartition("/")[0]
    yield mount


def _table(text: str) -> dict[str, int]:
    """Lines of a name and a number; what follows the number, such as a unit, is left out."""
    return {fields[0]: int(fields[1]) for fields in map(str.split, procfs.lines(text)) if len(fields) > 1}

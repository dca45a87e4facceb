"""The memory that this process may use: its control groups, version 1 or 2, below that of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    for folder in _folders(root, version):
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


def _folders(root: Root, version: _Version) -> Iterator[str]:
    path = ""
    for line in root.read("/proc/self/cgroup").splitlines():
        _, controllers, path_here = line.split(":", 2)
        if version.controller in controllers.split(","):
            path = path_here.rstrip("/")
    while path:
        yield version.mount + path
        path = path.rpartition("/")[0]
    yield version.mount


def _table(text: str) -> dict[str, int]:
    """Lines of a name and a number; what follows the number, such as a unit, is left out."""
    return {fields[0]: int(fields[1]) for fields in map(str.split, text.splitlines()) if len(fields) > 1}

"""Who a process is, in the words of a finding: pid, user, command, age."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.preflight.machine.root import Root

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PF_KTHREAD = 0x00200000  # include/linux/sched.h: a thread of the kernel
COMMAND_LENGTH = 80  # characters of a command line that a finding shows


@dataclass(frozen=True)
class Process:
    """A living process. `start` is in clock ticks since boot, `age_s` in seconds."""

    pid: int
    uid: int
    command: str
    start: int
    age_s: float

    def __str__(self) -> str:
        return f"pid {self.pid} ({user_name(self.uid)}, {duration(self.age_s)} old): {self.command}"


def read(root: Root, pid: int) -> Process | None:
    """The process with this pid; None when it is gone, a zombie, or not in our pid namespace."""
    try:
        stat = root.read(f"/proc/{pid}/stat")
        status = root.read(f"/proc/{pid}/status")
        command = root.read(f"/proc/{pid}/cmdline", 4 * COMMAND_LENGTH).replace("\0", " ").strip()
        uptime_s = float(root.read("/proc/uptime").split()[0])
    except OSError:
        return None
    # The command name stands in parentheses and may hold spaces and parentheses itself.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    uid = next(int(line.split()[1]) for line in procfs.lines(status) if line.startswith("Uid:"))
    start = int(fields[19])
    return Process(pid, uid, _shorten(command or f"[{name}]"), start, max(0.0, uptime_s - start / TICKS_PER_S))


@dataclass(frozen=True)
class Sleep:
    """A process in uninterruptible sleep. `where` is the function of the kernel that it sleeps in, empty where that
    may not be read; `steps` counts its context switches: two equal Sleeps are one and the same."""

    pid: int
    parent: int
    start: int
    where: str
    steps: str


def sleep(root: Root, pid: int) -> Sleep | None:
    """How a process sleeps; None when it is gone, does something else, or is the kernel's own thread."""
    try:
        fields = _fields(root.read(f"/proc/{pid}/stat"))
        if fields[0] != "D" or int(fields[6]) & PF_KTHREAD:
            return None
        status = root.read(f"/proc/{pid}/status")
    except (OSError, IndexError, ValueError):
        return None
    try:
        where = root.read(f"/proc/{pid}/wchan").strip()
    except OSError:
        where = ""
    switches = next((line.split()[1] for line in procfs.lines(status) if line.startswith("voluntary_ctxt")), "")
    return Sleep(pid, int(fields[1]), int(fields[19]), "" if where == "0" else where, switches)


def zombies(root: Root) -> Iterator[int]:
    """The parent of each dead process that was not collected."""
    for pid in pids(root):
        try:
            fields = _fields(root.read(f"/proc/{pid}/stat"))
            if fields[0] == "Z":
                yield int(fields[1])
        except (OSError, IndexError, ValueError):
            continue


def _fields(stat: str) -> list[str]:
    """/proc/PID/stat from field 3, the state, on: the command before it may hold blanks and parentheses."""
    return stat.rpartition(")")[2].split()


def pids(root: Root) -> list[int]:
    """All processes that are visible now, in order."""
    return sorted(int(name) for name in root.names("/proc") if name.isdecimal())


def parent(root: Root, pid: int) -> int:
    """The pid of a process' parent; 0 where that is not to be seen."""
    try:
        return int(_fields(root.read(f"/proc/{pid}/stat"))[1])
    except (OSError, IndexError, ValueError):
        return 0


def environ(root: Root, pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it may not be read."""
    try:
        text = root.read(f"/proc/{pid}/environ", procfs.STARTED_WITH)
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def user_name(uid: int) -> str:
    """The user's name, or the bare number where the machine has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def duration(seconds: float) -> str:
    """A length of time in its largest whole unit: `40 s`, `3 min`, `2 h`, `5 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def kill_line(found: list[Process]) -> str:
    """The command that ends these processes, ready to paste."""
    return "kill " + " ".join(str(process.pid) for process in found)


def _shorten(command: str) -> str:
    return command if len(command) <= COMMAND_LENGTH else command[: COMMAND_LENGTH - 3] + "..."

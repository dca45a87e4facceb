"""What /proc says about processes: identity, descent and membership of a run. Standard library only."""

from __future__ import annotations

import array
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST = 16 << 20
# What a program can be given with the usual stack of 8 MiB (man 2 execve). Any process can make the kernel show as much
# as it likes (PR_SET_MM_MAP of man 2 prctl).
STARTED_WITH = 2 << 20
OWN_SESSIONS: set[int] = set()  # of probes that this process has started, and that run
PR_SET_PDEATHSIG = 1  # prctl(2)
AUXV, AT_SECURE = 4096, 23  # bytes; include/uapi/linux/auxvec.h


@dataclass(frozen=True)
class Process:
    """One process as /proc/PID/stat describes it. `start` is in clock ticks since boot: with `pid` it names a
    process for good, where a pid alone may be used again."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    start: int


def read(pid: int) -> Process | None:
    """The process with this pid, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold spaces and parentheses itself.
    fields = text[text.rfind(")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[0], int(fields[19]))


def scan() -> Iterator[Process]:
    """All processes that are visible now."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := read(int(name))) is not None:
            yield process


def owner(pid: int) -> int:
    """The user who has started a process, and as whom it runs; -1 when it is gone, or where these are two: whoever
    starts a setuid program chooses its environment, and its words are not those of the user as whom it runs."""
    try:
        users = set(status(pid, "Uid"))
        return -1 if len(users) != 1 or (os.geteuid() == 0 and _is_setuid(pid)) else int(users.pop())
    except OSError:
        return -1


def lines(text: str) -> list[str]:
    """The lines of a text of the kernel's, without empty ones: a newline ends them and nothing else. It escapes no
    other character that `splitlines`, or a file that is opened as text, takes for an end: a process may be called
    `\\rUid: 0`, and a mount point likewise."""
    return [line for line in text.split("\n") if line]


def status(pid: int, name: str) -> list[str]:
    """What a field of /proc/PID/status holds, word by word; nothing where it has none of that name.

    Raises:
        OSError: it cannot be read.
    """
    text = content(f"/proc/{pid}/status").decode("ascii", "replace")
    found = next((line for line in lines(text) if line.startswith(f"{name}:")), "")
    return found.split()[1:]


def _is_setuid(pid: int) -> bool:
    """Whether the kernel has given the program more than the user who started it has (AT_SECURE): it may have taken on
    that user's place since."""
    with open(f"/proc/{pid}/auxv", "rb") as file:
        words = array.array("L", file.read(AUXV))
    return 1 in (value for key, value in zip(words[::2], words[1::2], strict=False) if key == AT_SECURE)


def is_gone(process: Process) -> bool:
    """Whether a process that was there has ended, reaped or not."""
    current = read(process.pid)
    return current is None or current.start != process.start or current.state in "ZX"


def descendants(root: int, processes: Iterable[Process]) -> list[Process]:
    """The processes below `root`, without it."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [process.pid for process in below]
    return found


def content(path: str, most: int = MOST) -> bytes:
    """The beginning of a file of /proc or /sys, up to a number of bytes: some are as large as a process likes.

    Raises:
        OSError: it cannot be read.
    """
    parts = []
    with open(path, "rb", buffering=0) as file:
        # Those of /proc/sys refuse to be read in one piece of megabytes (ENOMEM).
        while most > 0 and (part := file.read(min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
    return b"".join(parts)


def environ(pid: int) -> bytes:
    """The environment that a process was started with, `NAME=value` with a NUL behind each, as far as it is believed.

    Raises:
        OSError: it cannot be read.
    """
    return content(f"/proc/{pid}/environ", STARTED_WITH)


def in_environ(pid: int, entry: bytes) -> bool:
    """Whether the process was started with `NAME=value` in its environment (false where it cannot be read)."""
    try:
        return b"\0%b\0" % entry in b"\0%b\0" % environ(pid)
    except OSError:
        return False


def command(pid: int) -> list[str]:
    """The command line of a process, word by word; empty where it cannot be read."""
    try:
        return [os.fsdecode(word) for word in content(f"/proc/{pid}/cmdline", STARTED_WITH).split(b"\0")[:-1]]
    except OSError:
        return []


def catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler of its own for a signal (SigCgt in /proc/PID/status)."""
    try:
        return any(int(mask, 16) >> (signum - 1) & 1 for mask in status(pid, "SigCgt"))
    except OSError:
        return False


def send(process: Process, signum: int) -> bool:
    """Send a signal to exactly this process, not to a later one with its pid. True if it was sent."""
    if is_gone(process):
        return False
    try:
        os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def die_with_parent() -> None:
    """Have the kernel end this process when the thread that has forked it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


def left_after(processes: Iterable[Process], seconds: float, every_s: float = 0.05) -> list[Process]:
    """Wait until these have ended, for so many seconds at most; returns those that have not."""
    until = time.monotonic() + seconds
    while left := [process for process in processes if not is_gone(process)]:
        if time.monotonic() > until:
            break
        time.sleep(every_s)
        processes = left
    return left


def end(processes: Iterable[Process], signum: int) -> None:
    """Send `signum`, and SIGCONT after it, so that a stopped process can act on it."""
    for process in processes:
        if send(process, signum) and signum != signal.SIGKILL:
            send(process, signal.SIGCONT)

"""What /proc says of one process or thread, and who is below a process. Nothing is stopped, and no file is touched.

A file on a dead file system must not hold us: links are read, but what they point to is never opened or looked at.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from typing import Any

from safelaunch import procfs
from safelaunch.evidence import syscalls

FRESH_S = 0.2  # all ranks are looked at together: one scan of /proc (37 µs a process) serves them all
PATH_BYTES = 1024
AT_FDCWD = 0xFFFFFF9C  # -100: relative to the current folder
_POLLFD = struct.Struct("<ihh")

_lock = threading.Lock()
_scanned: tuple[float, list[procfs.Process]] = (float("-inf"), [])


def below(pid: int) -> list[procfs.Process]:
    """The processes below `pid`, as they were at most `FRESH_S` ago."""
    global _scanned
    with _lock:
        if time.monotonic() - _scanned[0] > FRESH_S:
            _scanned = (time.monotonic(), list(procfs.scan()))
        return procfs.descendants(pid, _scanned[1])


def forget() -> None:
    """Drop the scan that `below` keeps."""
    global _scanned
    _scanned = (float("-inf"), [])


def text(pid: int, name: str) -> str:
    """A small file of /proc/PID, or nothing where it is gone or forbidden."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def threads(pid: int) -> list[int]:
    """The ids of a process's threads."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def state(pid: int, tid: int) -> str:
    """The state letter of a thread, or nothing when it is gone."""
    stat = text(pid, f"task/{tid}/stat")
    return stat[stat.rfind(")") + 2 :][:1]


def look(pid: int, tid: int | None = None, *, memory: bool = True) -> dict[str, Any]:
    """Where a thread is in the kernel (the main thread by default): name, state, wchan, syscall, and `file` with its
    `filesystem`, the thing that the call is about. `memory` allows to read the arguments behind pointers."""
    tid = tid or pid
    folder = f"task/{tid}"
    wchan = text(pid, f"{folder}/wchan")
    call, file = _call(pid, text(pid, f"{folder}/syscall").split(), memory)
    return {
        "name": text(pid, f"{folder}/comm"),
        "state": state(pid, tid),
        "wchan": "" if wchan == "0" else wchan,
        "syscall": call,
        "file": file,
        "filesystem": filesystem(text(pid, "mountinfo"), file) if file.startswith("/") else "",
    }


def _call(pid: int, words: list[str], memory: bool) -> tuple[str, str]:
    """The call's name and its file from /proc's `number argument...` (`running` and -1: in no call)."""
    if not words or not words[0].isdigit():
        return "", ""
    name = syscalls.name(int(words[0]))
    arguments = [int(word, 16) for word in words[1:7]]
    file = ""
    if name in syscalls.DESCRIPTOR:
        file = _link(pid, arguments[0])
    elif memory and name in syscalls.PATH:
        place = syscalls.PATH[name]
        path = _memory(pid, arguments[place], PATH_BYTES).split(b"\0", 1)[0].decode("utf-8", "replace")
        file = path if path.startswith("/") else os.path.join(_base(pid, arguments[0] if place else None), path)
    elif memory and name in syscalls.POLL and arguments[1]:
        data = _memory(pid, arguments[0], _POLLFD.size)
        file = _link(pid, _POLLFD.unpack(data)[0]) if len(data) == _POLLFD.size else ""
    return name, file


def _base(pid: int, descriptor: int | None) -> str:
    """The folder that a relative path starts from; with an empty path, the file itself."""
    try:
        at_cwd = descriptor is None or descriptor & 0xFFFFFFFF == AT_FDCWD
        return os.readlink(f"/proc/{pid}/cwd") if at_cwd else _link(pid, descriptor or 0)
    except OSError:
        return ""


def _link(pid: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}")
    except OSError:
        return ""


def _memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of another process, as far as they are there. Only what a debugger may read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            size = min(size, 4096 - address % 4096)  # the page behind may not exist
            return os.pread(file.fileno(), size, address)
    except (OSError, OverflowError):
        return b""


def filesystem(mounts: str, file: str) -> str:
    """The type of the file system that holds `file`, such as `nfs4`: that of the longest mount point above it in
    /proc/PID/mountinfo (of equals the latest, which hides the others)."""
    best, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4]).rstrip("/")
        if len(point) >= best and (file == point or file.startswith(point + "/")):
            best, found = len(point), after.split()[0]
    return found

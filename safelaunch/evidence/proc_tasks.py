"""What /proc says of one process or thread, and who is below a process. Nothing is stopped, and no file is touched.

A file on a dead file system must not hold us: links are read, but what they point to is never opened or looked at.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from safelaunch import procfs
from safelaunch.evidence import syscalls

FRESH_S = 0.2  # all ranks are looked at together: one scan of /proc (37 µs a process) serves them all
PATH_BYTES = 1024
AT_FDCWD = 0xFFFFFF9C  # -100: relative to the current folder
_POLLFD = struct.Struct("<ihh")
LISTEN = "0A"  # include/net/tcp_states.h

_lock = threading.Lock()
_scanned: tuple[float, list[procfs.Process]] = (float("-inf"), [])


def below(pid: int) -> list[procfs.Process]:
    """The processes below `pid`, as they were at most `FRESH_S` ago."""
    return procfs.descendants(pid, processes())


def processes() -> list[procfs.Process]:
    """All processes, as they were at most `FRESH_S` ago."""
    global _scanned
    with _lock:
        if time.monotonic() - _scanned[0] > FRESH_S:
            _scanned = (time.monotonic(), list(procfs.scan()))
        return _scanned[1]


def forget() -> None:
    """Drop the scan that `below` keeps."""
    global _scanned
    _scanned = (float("-inf"), [])


def text(pid: int, name: str) -> str:
    """A small file of /proc/PID, or nothing where it is gone or forbidden."""
    return "\n".join(lines(f"/proc/{pid}/{name}")).strip()


def lines(path: str) -> list[str]:
    """The lines of a file of /proc, or none where it is gone or forbidden."""
    try:
        return procfs.content(path).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


class Connection(NamedTuple):
    """A TCP socket of /proc/net/tcp, with its addresses as they stand there: `0100007F:7148`."""

    local: str
    remote: str
    listens: bool
    inode: str


def connections(pid: int | str = "self") -> Iterator[Connection]:
    """The TCP sockets of a process's network."""
    for table in ("tcp", "tcp6"):
        for line in lines(f"/proc/{pid}/net/{table}")[1:]:
            fields = line.split()
            if len(fields) > 9:
                yield Connection(fields[1], fields[2], fields[3] == LISTEN, fields[9])


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
    `filesystem` and `mount`, the thing that the call is about. `memory` allows to read the arguments behind
    pointers."""
    tid = tid or pid
    folder = f"task/{tid}"
    wchan = text(pid, f"{folder}/wchan")
    call, file = _call(pid, text(pid, f"{folder}/syscall").split(), memory)
    where = mount(text(pid, "mountinfo"), file) if file.startswith("/") else ("", "")
    return {
        "name": text(pid, f"{folder}/comm"),
        "state": state(pid, tid),
        "wchan": "" if wchan == "0" else wchan,
        "syscall": call,
        "file": file,
        "mount": where[0],
        "filesystem": where[1],
    }


def _call(pid: int, words: list[str], memory: bool) -> tuple[str, str]:
    """The call's name and its file from /proc's `number argument...` (`running` and -1: in no call)."""
    if not words or not words[0].isdecimal():
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
    elif memory and name in syscalls.SELECT and arguments[1]:
        file = _first_selected(pid, arguments[0], arguments[1])
    if name in syscalls.EPOLL:
        watched = re.findall(r"^tfd:\s*(\d+)", text(pid, f"fdinfo/{arguments[0] & 0xFFFFFFFF}"), re.MULTILINE)
        links = [_link(pid, int(descriptor)) for descriptor in watched]
        # An event loop wakes itself by a pipe or a socket pair of its own: one thing besides is what it waits for.
        pairs = {f"socket:[{line.split()[6]}]" for line in lines(f"/proc/{pid}/net/unix")[1:] if len(line.split()) == 7}
        sockets = [link for link in links if link.startswith("socket:[") and link not in pairs]
        file = sockets[0] if len(sockets) == 1 else file
    return name, file


def _first_selected(pid: int, count: int, address: int) -> str:
    """What stands behind the first descriptor of an fd_set."""
    for byte, value in enumerate(_memory(pid, address, min(count + 7, 1024) // 8)):
        for bit in range(8):
            if value >> bit & 1 and byte * 8 + bit < count:
                return _link(pid, byte * 8 + bit)
    return ""


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
    """Bytes of another process, as far as they are there, and are no file's: a file system that is dead, or a program
    of somebody's (FUSE), would hold whoever reads them. Only what a debugger may read."""
    if not _is_of_no_file(pid, address):
        return b""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            size = min(size, 4096 - address % 4096)  # the page behind may not exist
            return os.pread(file.fileno(), size, address)
    except (OSError, OverflowError):
        return b""


def _is_of_no_file(pid: int, address: int) -> bool:
    """Whether an address is in memory that no file is mapped into (proc_pid_maps(5))."""
    for line in lines(f"/proc/{pid}/maps"):
        span, _, _, _, inode, *_ = (*line.split(None, 5), "", "", "", "", "")
        first, _, end = span.partition("-")
        if end and int(first, 16) <= address < int(end, 16):
            return inode == "0"
    return False


def filesystem(mounts: str, file: str) -> str:
    """The type of the file system that holds `file`, such as `nfs4`."""
    return mount(mounts, file)[1]


def mount(mounts: str, file: str) -> tuple[str, str]:
    """Where the file system that holds `file` is mounted, and its type: the longest mount point above it in
    /proc/PID/mountinfo (of equals the latest, which hides the others)."""
    best, found = -1, ("", "")
    for line in procfs.lines(mounts):
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4]).rstrip("/")
        if len(point) >= best and (file == point or file.startswith(point + "/")):
            best, found = len(point), (point or "/", after.split()[0])
    return found

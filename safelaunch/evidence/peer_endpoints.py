"""What a process waits for outside of itself: who is at the other end of a socket or a pipe, and who holds a lock.

/proc alone is read. No file that a path or a descriptor stands for is opened or looked at: it may be on a dead disk.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from safelaunch import procfs
from safelaunch.evidence import proc_tasks
from safelaunch.model import Endpoint, Process

LOCKS = {"flock", "fcntl"}
NOT_ACCEPTED = "0"  # the inode of a connection that still waits in its listener's queue
RECEIVES = {"recvfrom", "recvmsg", "read"}
LOOK_S = 0.3  # for all descriptors of all processes; what was not seen by then is not said
FRESH_S = 0.5
NAMED = 3
FIRST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h: here all processes can be seen
# Where the kernel waits for the other end of a FIFO: fs/pipe.c.
OPENS_FIFO = "wait_for_partner"
FIFO_READ = re.compile(r"pipe_read$|pipe_write$")

_looking = threading.Lock()
_seen: tuple[float, dict[str, list[tuple[int, int]]], bool | None] = (float("-inf"), {}, True)


def of(pid: int, seen: dict[str, Any]) -> Endpoint | None:
    """What stands at the other end of the call that a thread of `pid` is in; None where nothing is known. `seen` is
    what `tasks.look` has found of it."""
    file, call = seen.get("file", ""), seen.get("syscall", "")
    if file.startswith("socket:["):
        return _socket(pid, file[8:-1])
    if file.startswith("pipe:["):
        end = _pipe(pid, file, call)
        return end if end.processes or end.sees_all is not None else None
    if call in LOCKS:
        return _lock(pid)
    if file.startswith("/") and seen.get("wchan") == OPENS_FIFO:
        return Endpoint("FIFO", sees_all=True)  # the kernel itself waits for its other end
    if file.startswith("/") and FIFO_READ.search(seen.get("wchan", "")):
        return replace(_pipe(pid, file, call), kind="FIFO")
    return None


def beside(pid: int, seen: dict[str, Any]) -> list[str]:
    """Other processes that the kernel holds at the same place: `name (pid)`, below a process in state D."""
    if seen.get("state") != "D":
        return []
    own = {pid, *(child.pid for child in proc_tasks.below(pid))}
    found = []
    for process in proc_tasks.processes():
        held = process.state == "D" and process.pid not in own and bool(seen["wchan"])
        if held and proc_tasks.text(process.pid, "wchan") == seen["wchan"]:
            found.append(_name(process.pid))
    return found


def _process(pid: int) -> Process:
    return Process(pid, proc_tasks.text(pid, "comm") or "?")


def _name(pid: int) -> str:
    return f"{proc_tasks.text(pid, 'comm') or '?'} (pid {pid})"


def _socket(pid: int, inode: str) -> Endpoint | None:
    """Of a TCP socket of the process's network the address at its other end, and who has it where that is here."""
    sockets = list(proc_tasks.connections(pid))
    for socket in sockets:
        if socket.inode == inode:
            if socket.listens:
                return Endpoint("listener", _address(socket.local).rpartition(":")[2])
            return _connection(pid, socket, sockets)
    for line in procfs.lines(proc_tasks.text(pid, "net/unix"))[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[6] == inode:
            return Endpoint("unix socket", fields[7])
    return None


def _connection(pid: int, socket: proc_tasks.Connection, sockets: list[proc_tasks.Connection]) -> Endpoint:
    """The other end of a connection; it is the ranks' own store where torch elastic serves that, at MASTER_PORT."""
    address = _address(socket.remote)
    port = address.rpartition(":")[2]
    if procfs.in_environ(pid, b"MASTER_PORT=%b" % port.encode()):
        return Endpoint("store", address)
    other = next((each for each in sockets if (each.local, each.remote) == (socket.remote, socket.local)), None)
    if other is None:
        return Endpoint("connection", address)  # on another host
    accepted = other.inode != NOT_ACCEPTED
    if not accepted:
        other = next((each for each in sockets if each.listens and _port(each) == int(port)), other)
    owners = sorted({each for each, _ in _holders(f"socket:[{other.inode}]")[0]})[:NAMED]
    if not owners:
        return Endpoint("connection", address)
    receives = any(_receives(each, f"socket:[{other.inode}]") for each in owners)
    return Endpoint("connection", address, tuple(map(_process, owners)), accepted=accepted, receives=receives)


def _receives(pid: int, file: str) -> bool:
    """Whether a thread of a process waits for input from this."""
    for tid in proc_tasks.threads(pid):
        seen = proc_tasks.look(pid, tid, memory=False)
        if seen["file"] == file and seen["syscall"] in RECEIVES:
            return True
    return False


def _port(socket: proc_tasks.Connection) -> int:
    return int(socket.local.rpartition(":")[2], 16)


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of four bytes in the machine's order, and a port."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4)) if sys.byteorder == "little" else raw
    ip = ipaddress.ip_address(raw)
    mapped = getattr(ip, "ipv4_mapped", None)
    shown = str(mapped or ip)
    return f"[{shown}]:{int(port, 16)}" if ":" in shown else f"{shown}:{int(port, 16)}"


def _pipe(pid: int, file: str, call: str) -> Endpoint:
    """Who could write what the process reads, or read what it writes."""
    holders, whole = _holders(file)
    modes = (os.O_RDONLY, os.O_RDWR) if call.startswith(("write", "pwrite")) else (os.O_WRONLY, os.O_RDWR)
    ends = {each for each, mode in holders if mode in modes}
    others = sorted(ends - {pid})
    return Endpoint(
        "pipe",
        processes=tuple(map(_process, others[:NAMED])),
        more=max(0, len(others) - NAMED),
        itself=pid in ends and not others,
        sees_all=whole,
    )


def _holders(file: str) -> tuple[list[tuple[int, int]], bool | None]:
    """The processes that have this open, with their access modes, and whether all processes could be asked: None where
    there was no time for it."""
    global _seen
    with _looking:
        if time.monotonic() - _seen[0] > FRESH_S:
            _seen = _all_open()
        found, whole = _seen[1].get(file, []), _seen[2]
    modes = []
    for pid, descriptor in found:
        flags = re.search(r"flags:\s*(\d+)", proc_tasks.text(pid, f"fdinfo/{descriptor}"))
        if flags:
            modes.append((pid, int(flags[1], 8) & os.O_ACCMODE))
    return modes, whole


def _all_open() -> tuple[float, dict[str, list[tuple[int, int]]], bool | None]:
    """Pipes, sockets and files by the processes that have them open, with the descriptor."""
    found: dict[str, list[tuple[int, int]]] = {}
    young = sorted(proc_tasks.processes(), key=lambda each: -each.pid)  # what is young has to do with a run
    until, whole = time.monotonic() + LOOK_S, _sees_all()
    for process in young:
        if time.monotonic() > until:
            return time.monotonic(), found, None
        try:
            for descriptor, link in _links(process.pid):
                if link.startswith(("pipe:[", "socket:[", "/")):
                    found.setdefault(link, []).append((process.pid, descriptor))
        except PermissionError:
            whole = False
    return time.monotonic(), found, whole


def _sees_all() -> bool:
    """Whether no process of this machine is hidden from here, as those outside of a container are."""
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_PIDS
    except OSError:
        return False


def _links(pid: int) -> Iterator[tuple[int, str]]:
    """What a process has open; what it closes meanwhile is left out."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            yield int(name), os.readlink(f"/proc/{pid}/fd/{name}")


def _lock(pid: int) -> Endpoint | None:
    """Who holds the file lock that the process waits for (/proc/locks: `->` marks who waits for the line above)."""
    holder = ""
    for line in proc_tasks.lines("/proc/locks"):
        fields = line.split()
        if len(fields) > 5 and fields[1] == "->" and fields[5] == str(pid):
            known = holder.isdecimal() and int(holder)  # 0 where it is out of sight
            return Endpoint("file lock", processes=(_process(int(holder)),) if known else ())
        if len(fields) > 4 and fields[1] != "->":
            holder = fields[4]
    return None

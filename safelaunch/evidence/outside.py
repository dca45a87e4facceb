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
from typing import Any

from safelaunch import procfs
from safelaunch.evidence import tasks

LOCKS = {"flock", "fcntl"}
NOT_ACCEPTED = "0"  # the inode of a connection that still waits in its listener's queue
STORE = "the store of torch.distributed"  # diagnosis.stall goes by these words
TOO = "and waits for input from it, too"  # and by these
RECEIVES = {"recvfrom", "recvmsg", "read"}
LOOK_S = 0.3  # for all descriptors of all processes; what was not seen by then is not said
FRESH_S = 0.5
NAMED = 3
FIRST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h: here all processes can be seen
# Where the kernel waits for the other end of a FIFO: fs/pipe.c.
OPENS_FIFO = "wait_for_partner"
FIFO_READ = re.compile(r"pipe_read$|pipe_write$")

_lock = threading.Lock()
_seen: tuple[float, dict[str, list[tuple[int, int]]], bool | None] = (float("-inf"), {}, True)


def of(pid: int, seen: dict[str, Any]) -> str:
    """What stands at the other end of the call that a thread of `pid` is in, as words; nothing where nothing is known.
    `seen` is what `tasks.look` has found of it."""
    file, call = seen.get("file", ""), seen.get("syscall", "")
    if file.startswith("socket:["):
        return _peer(pid, file[8:-1])
    if file.startswith("pipe:["):
        return _pipe(pid, file, call)
    if call in LOCKS:
        return _holder(pid)
    if file.startswith("/") and seen.get("wchan") == OPENS_FIFO:
        return "a FIFO that nobody has opened at its other end"
    if file.startswith("/") and FIFO_READ.search(seen.get("wchan", "")):
        return "; ".join(filter(None, ("a FIFO", _pipe(pid, file, call))))
    return ""


def beside(pid: int, seen: dict[str, Any]) -> list[str]:
    """Other processes that the kernel holds at the same place: `name (pid)`, below a process in state D."""
    if seen.get("state") != "D":
        return []
    own = {pid, *(child.pid for child in tasks.below(pid))}
    found = []
    for process in tasks.processes():
        held = process.state == "D" and process.pid not in own and bool(seen["wchan"])
        if held and tasks.text(process.pid, "wchan") == seen["wchan"]:
            found.append(_name(process.pid))
    return found


def _name(pid: int) -> str:
    return f"{tasks.text(pid, 'comm') or '?'} (pid {pid})"


def _peer(pid: int, inode: str) -> str:
    """`10.0.0.5:443` for a TCP socket of the process's network, and who has its other end where that is here."""
    sockets = list(tasks.connections(pid))
    for socket in sockets:
        if socket.inode == inode:
            if socket.listens:
                return f"a connection to its own port {_address(socket.local).rpartition(':')[2]}"
            return _named(pid, socket, sockets)
    for line in procfs.lines(tasks.text(pid, "net/unix"))[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[6] == inode:
            return f"unix socket {fields[7]}"
    return ""


def _named(pid: int, socket: tasks.Connection, sockets: list[tasks.Connection]) -> str:
    """The address at the other end of a connection, and that it is the ranks' own store where it is: torch elastic
    serves it at MASTER_PORT."""
    address = _address(socket.remote)
    port = address.rpartition(":")[2]
    if procfs.in_environ(pid, b"MASTER_PORT=%b" % port.encode()):
        return f"{STORE}, {address}"
    other = next((each for each in sockets if (each.local, each.remote) == (socket.remote, socket.local)), None)
    if other is None:
        return address  # on another host
    before, after = "whose other end ", " has"
    if other.inode == NOT_ACCEPTED:
        other = next((each for each in sockets if each.listens and _port(each) == int(port)), other)
        before, after = "which ", " has not accepted"
    owners = sorted({each for each, _ in _holders(f"socket:[{other.inode}]")[0]})
    if not owners:
        return address
    too = f" {TOO}" if any(_receives(each, f"socket:[{other.inode}]") for each in owners[:NAMED]) else ""
    return f"{address}, {before}{', '.join(map(_name, owners[:NAMED]))}{after}{too}"


def _receives(pid: int, file: str) -> bool:
    """Whether a thread of a process waits for input from this."""
    for tid in tasks.threads(pid):
        seen = tasks.look(pid, tid, memory=False)
        if seen["file"] == file and seen["syscall"] in RECEIVES:
            return True
    return False


def _port(socket: tasks.Connection) -> int:
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


def _pipe(pid: int, file: str, call: str) -> str:
    """Who could write what the process reads, or read what it writes."""
    holders, whole = _holders(file)
    reads = not call.startswith(("write", "pwrite"))
    modes = (os.O_WRONLY, os.O_RDWR) if reads else (os.O_RDONLY, os.O_RDWR)
    ends = {each for each, mode in holders if mode in modes}
    others = sorted(ends - {pid})
    if others:
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        return f"{', '.join(map(_name, others[:NAMED]))}{more} has its other end"
    if whole is None:
        return ""
    nobody = "nobody but itself" if pid in ends else "nobody"
    return f"{nobody}{'' if whole else ' that can be seen'} {'writes to' if reads else 'reads'} it"


def _holders(file: str) -> tuple[list[tuple[int, int]], bool | None]:
    """The processes that have this open, with their access modes, and whether all processes could be asked: None where
    there was no time for it."""
    global _seen
    with _lock:
        if time.monotonic() - _seen[0] > FRESH_S:
            _seen = _all_open()
        found, whole = _seen[1].get(file, []), _seen[2]
    modes = []
    for pid, descriptor in found:
        flags = re.search(r"flags:\s*(\d+)", tasks.text(pid, f"fdinfo/{descriptor}"))
        if flags:
            modes.append((pid, int(flags[1], 8) & os.O_ACCMODE))
    return modes, whole


def _all_open() -> tuple[float, dict[str, list[tuple[int, int]]], bool | None]:
    """Pipes, sockets and files by the processes that have them open, with the descriptor."""
    found: dict[str, list[tuple[int, int]]] = {}
    young = sorted(tasks.processes(), key=lambda each: -each.pid)  # what is young has to do with a run
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


def _holder(pid: int) -> str:
    """Who holds the file lock that the process waits for (/proc/locks: `->` marks who waits for the line above)."""
    holder = ""
    for line in tasks.lines("/proc/locks"):
        fields = line.split()
        if len(fields) > 5 and fields[1] == "->" and fields[5] == str(pid):
            return f"held by {_name(int(holder))}" if holder.isdecimal() and int(holder) else "held by another process"
        if len(fields) > 4 and fields[1] != "->":
            holder = fields[4]
    return ""

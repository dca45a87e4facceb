"""What the TCP connections of a rank carry: the kernel counts read(2) and write(2) for a process, and send(2) not.

Asked of the kernel itself (sock_diag(7), as `ss -i` does): bytes that a peer has acknowledged, and bytes received.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator

from safelaunch import procfs
from safelaunch.evidence import proc_tasks
from safelaunch.model import Evidence, Incident, WorkerProcess

SOURCE = "sockets"
FAMILIES = (socket.AF_INET, socket.AF_INET6)
NETLINK_SOCK_DIAG, DONE, ERROR, SOCK_DIAG_BY_FAMILY = 4, 3, 2, 20  # linux/netlink.h, linux/sock_diag.h
REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
INFO = 2  # INET_DIAG_INFO, linux/inet_diag.h
ALL_STATES = 0xFFF
ANSWER_S = 0.2
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")  # inet_diag_req_v2, of all sockets
_INODE = struct.Struct("=68xI")  # inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_CARRIED = struct.Struct("=120xQQ")  # tcp_info: tcpi_bytes_acked, tcpi_bytes_received


def collect(incident: Incident, worker: WorkerProcess, deadline: float) -> Evidence:  # noqa: ARG001
    """`bytes` that each connection of the rank and of the processes below it has carried at `t`, by inode."""
    process = procfs.read(worker.pid)
    if process is None or process.start != worker.start or process.state in "ZX":
        return Evidence(SOURCE, worker.rank, unavailable="the process had ended")
    own = {inode for pid in (worker.pid, *(one.pid for one in proc_tasks.below(worker.pid))) for inode in _inodes(pid)}
    carried = {inode: count for inode, count in (_connections() if own else ()) if inode in own}
    return Evidence(SOURCE, worker.rank, {"t": time.monotonic(), "bytes": carried})


def rate(before: Evidence | None, after: Evidence | None) -> float:
    """Bytes a second between two looks at a rank; 0 where there are not two."""
    if before is None or after is None or not before.data or not after.data:
        return 0.0
    earlier, seconds = before.data["bytes"], after.data["t"] - before.data["t"]
    moved = sum(max(0, count - earlier.get(inode, 0)) for inode, count in after.data["bytes"].items())
    return moved / seconds if seconds > 0 else 0.0


def _inodes(pid: int) -> Iterator[int]:
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{name}")
            if link.startswith("socket:["):
                yield int(link[8:-1])
    except OSError:
        return  # it is gone, or has closed it meanwhile


def _connections() -> Iterator[tuple[int, int]]:
    """Inode and bytes of every TCP connection of this network; none where the kernel does not say."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(ANSWER_S)
            for family in FAMILIES:
                body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INFO - 1), ALL_STATES)
                asked.send(_HEAD.pack(_HEAD.size + len(body), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + body)
                yield from _answers(asked)
    except (OSError, AttributeError, struct.error):
        return


def _answers(asked: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        data = asked.recv(1 << 16)
        while data:
            size, kind, *_ = _HEAD.unpack_from(data)
            if kind in (DONE, ERROR):
                return
            found = _one(data[_HEAD.size : size])
            if found is not None:
                yield found
            data = data[_aligned(size) :]


def _one(message: bytes) -> tuple[int, int] | None:
    (inode,) = _INODE.unpack_from(message)
    at = _INODE.size
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == INFO and size >= _ATTRIBUTE.size + _CARRIED.size:
            return inode, sum(_CARRIED.unpack_from(message, at + _ATTRIBUTE.size))
        at += max(_aligned(size), _ATTRIBUTE.size)
    return None


def _aligned(size: int) -> int:
    return (size + 3) & ~3

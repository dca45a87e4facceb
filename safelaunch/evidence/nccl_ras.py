"""What NCCL says of itself: since 2.24 a thread of each rank answers questions about the whole job (RAS).

The protocol is text over TCP (NVIDIA/nccl, src/ras/client.cc): `CLIENT PROTOCOL 2` is answered by `SERVER PROTOCOL n`,
`TIMEOUT seconds` by `OK`, and `VERBOSE STATUS` by a report, up to the end of the connection. All ranks of a node, and
those of other jobs of the same user, may listen on one port (SO_REUSEPORT): who answers is looked up in /proc/net/tcp,
and an answer from another job is no evidence.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from safelaunch import procfs
from safelaunch.evidence import proc_tasks
from safelaunch.model import WorkerProcess

SOURCE = "nccl_ras"
HOST, PORT = "localhost", 28028  # unless NCCL_RAS_ADDR says otherwise
PROTOCOL = 2
TIMEOUT = 1  # whole seconds that the thread may wait for those of other ranks; 0 would be for ever
MOST = 64 << 10  # bytes of a report; it names ten ranks of a kind at most
TRIES = 6  # to get a rank of this job, where another one listens at the same port
HANDSHAKE_S = 0.3  # a thread that answers does so at once; a rank that is stopped does not, and another one may


@dataclass(frozen=True)
class Answer:
    """The report of a rank's RAS thread, as far as it came, and why there is none, or not all of it. `rank` is None
    where no rank could be asked: without NCCL in the job, or with one that is older."""

    text: str = ""
    rank: int | None = None
    missing: str = ""


def ask(workers: Sequence[WorkerProcess], until: float) -> Answer:
    """Ask a rank of this job, where one listens. Never raises; `until` is CLOCK_MONOTONIC."""
    living = [worker for worker in workers if worker.exit is None]
    host, port = _address(living)
    mine = _sockets_of(living)
    if not any(inode in mine for inode in _inodes(port, listening=True)):
        return Answer()
    why = ""
    for _ in range(TRIES):
        try:
            answer = _converse(host, port, living, until)
        except OSError as error:
            why = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            continue
        if answer.rank is not None:
            return answer
        why = "ranks of another job answered at the same port"
    return Answer(rank=living[0].rank, missing=why)


def _address(workers: Iterable[WorkerProcess]) -> tuple[str, int]:
    """Where the ranks listen, by what they were started with."""
    for worker in workers:
        host, _, port = _variable(worker.pid, "NCCL_RAS_ADDR").rpartition(":")
        if port.isdecimal() and len(port) < 6:
            host = host.strip("[]")
            return (HOST if host in ("", "0.0.0.0", "::") else host), int(port)
    return HOST, PORT


def _variable(pid: int, name: str) -> str:
    try:
        entries = b"\0" + procfs.environ(pid)
    except OSError:
        return ""
    return entries.partition(b"\0%b=" % name.encode())[2].partition(b"\0")[0].decode("utf-8", "replace")


def _converse(host: str, port: int, workers: Sequence[WorkerProcess], until: float) -> Answer:
    greeted = min(until, time.monotonic() + HANDSHAKE_S)
    with socket.create_connection((host, port), timeout=_left(greeted)) as line:
        reader = line.makefile("rb")
        own = int(line.getsockname()[1])
        _say(line, f"CLIENT PROTOCOL {PROTOCOL}", greeted)
        if not reader.readline(MOST).upper().startswith(b"SERVER PROTOCOL"):
            raise OSError("something else than NCCL listens there")
        # The rank has accepted the connection by now, and holds its end.
        mine = _sockets_of(workers)
        rank = next((mine[inode] for inode in _inodes(port, own) if inode in mine), None)
        if rank is None:
            return Answer()
        _say(line, f"TIMEOUT {TIMEOUT}", until)
        reader.readline(MOST)
        _say(line, "VERBOSE STATUS", until)
        return _report(line, reader, rank, until)


def _report(line: socket.socket, reader: BinaryIO, rank: int, until: float) -> Answer:
    parts: list[bytes] = []
    size = 0
    while size < MOST:
        try:
            line.settimeout(_left(until))
            part = reader.readline(MOST)
        except OSError:
            why = "the report is not complete: some ranks' RAS threads had not answered in time"
            return Answer(_text(parts), rank, why)
        if not part:
            return Answer(_text(parts), rank)
        parts.append(part)
        size += len(part)
    return Answer(_text(parts), rank, f"the report was cut after {MOST >> 10} KiB")


def _text(parts: Iterable[bytes]) -> str:
    return b"".join(parts).decode("utf-8", "replace")


def _say(line: socket.socket, text: str, until: float) -> None:
    line.settimeout(_left(until))
    line.sendall(text.encode() + b"\n")


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _sockets_of(workers: Iterable[WorkerProcess]) -> dict[str, int]:
    """The ranks by the inodes of their sockets."""
    found: dict[str, int] = {}
    for worker in workers:
        process = procfs.read(worker.pid)
        if process is None or process.start != worker.start:
            continue
        folder = f"/proc/{worker.pid}/fd"
        try:
            for name in os.listdir(folder):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    found[target[8:-1]] = worker.rank
        except OSError:
            continue  # gone meanwhile, or not ours to look into
    return found


def _inodes(port: int, peer: int | None = None, *, listening: bool = False) -> list[str]:
    """The inodes of the sockets at a local port: those that listen, or those that talk to the port `peer`."""
    return [
        line.inode
        for line in proc_tasks.connections()
        if _port(line.local) == port and (line.listens if listening else _port(line.remote) == peer)
    ]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)

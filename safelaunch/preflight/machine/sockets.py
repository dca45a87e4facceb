"""Who holds a TCP port, from /proc/net/tcp: the user always, the process where we may look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from safelaunch import procfs
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.processes import Process
from safelaunch.preflight.machine.root import Root

# States of include/net/tcp_states.h in the Linux source.
LISTEN = "0A"
TIME_WAIT = "06"


@dataclass(frozen=True)
class Holder:
    """A socket on the port. `process` is None where its owner may not be looked into."""

    uid: int
    listening: bool
    process: Process | None

    def __str__(self) -> str:
        doing = "listens on it" if self.listening else "has a connection on it"
        who = str(self.process) if self.process else f"a process of {processes.user_name(self.uid)}"
        return f"{who} {doing}" if self.process is None else f"{who} ({doing})"


def holders(root: Root, port: int) -> tuple[Holder, ...]:
    """The sockets on a local port, listeners alone where there are any. TIME_WAIT holds nothing: a bind with
    SO_REUSEADDR, as torch's store does it, passes over it."""
    sockets = list(_sockets(root, port))
    sockets = [entry for entry in sockets if entry[1]] or sockets
    owners = _owners(root, {inode for _, _, inode in sockets})
    # A server that listens on IPv4 and IPv6 has two sockets and is one holder.
    return tuple(dict.fromkeys(Holder(uid, listening, owners.get(inode)) for uid, listening, inode in sockets))


def listeners(root: Root, pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(pid, port) of each port on which one of the processes listens."""
    ports = {f"socket:[{inode}]": port for port, _, listening, inode in _table(root) if listening}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            for descriptor in root.names(folder):
                if port := ports.get(root.readlink(f"{folder}/{descriptor}")):
                    yield pid, port
        except OSError:
            continue  # gone meanwhile, or not ours to look into


def _sockets(root: Root, port: int) -> Iterator[tuple[int, bool, str]]:
    """(uid, listening, inode) of each socket on the port."""
    return ((uid, listening, inode) for at, uid, listening, inode in _table(root) if at == port)


def _table(root: Root) -> Iterator[tuple[int, int, bool, str]]:
    """(port, uid, listening, inode) of each socket that holds a local port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = procfs.lines(root.read(table))[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] != TIME_WAIT:
                port = int(fields[1].rpartition(":")[2], 16)
                yield port, int(fields[7]), fields[3] == LISTEN, fields[9]


def _owners(root: Root, inodes: set[str]) -> dict[str, Process]:
    """The process of each socket, by inode. A socket that several share belongs to the oldest."""
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, Process] = {}
    for pid in processes.pids(root):
        if len(found) == len(links):
            break
        folder = f"/proc/{pid}/fd"
        try:
            for descriptor in root.names(folder):
                inode = links.get(root.readlink(f"{folder}/{descriptor}"))
                if inode and inode not in found and (process := processes.read(root, pid)):
                    found[inode] = process
        except OSError:
            continue  # gone meanwhile, or not ours to look into
    return found

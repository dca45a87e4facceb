"""The other end of a call, in words."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.diagnosis.stall.syscalls import OPENS, WRITES
from safelaunch.model import Endpoint, Kernel, Process

STORE = "the store of torch.distributed"


def described(kernel: Kernel) -> str:
    """What is known of the other end of the call that a thread is in; nothing where nothing is."""
    peer = kernel.peer
    if peer is None:
        return ""
    if peer.kind == "store":
        return f"{STORE}, {peer.address}" if peer.address else STORE
    if peer.kind == "listener":
        return f"a connection to its own port {peer.address}"
    if peer.kind == "unix socket":
        return f"unix socket {peer.address}"
    if peer.kind == "file lock":
        return f"held by {_names(peer.processes) or 'another process'}"
    if peer.kind == "connection":
        return _connection(peer)
    if peer.kind == "FIFO" and kernel.syscall in OPENS:
        return "a FIFO that nobody has opened at its other end"
    return "; ".join(filter(None, ("a FIFO" if peer.kind == "FIFO" else "", _pipe(peer, kernel.syscall in WRITES))))


def _connection(peer: Endpoint) -> str:
    if not peer.processes:
        return peer.address
    names = _names(peer.processes)
    has = f"whose other end {names} has" if peer.accepted else f"which {names} has not accepted"
    return f"{peer.address}, {has}{' and waits for input from it, too' if peer.receives else ''}"


def _pipe(peer: Endpoint, writes: bool) -> str:
    if peer.processes:
        more = f" and {peer.more} more" if peer.more else ""
        return f"{_names(peer.processes)}{more} has its other end"
    if peer.sees_all is None:
        return ""
    nobody = f"nobody{' but itself' if peer.itself else ''}{'' if peer.sees_all else ' that can be seen'}"
    return f"{nobody} {'reads' if writes else 'writes to'} it"


def _names(processes: Iterable[Process]) -> str:
    return ", ".join(f"{process.name} (pid {process.pid})" for process in processes)

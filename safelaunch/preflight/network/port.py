"""Check that the rendezvous port is free."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Address, Host
from safelaunch.preflight.network.endpoint import listens_here, master_addresses, of_this_node

WILDCARDS = (Address(socket.AF_INET, "0.0.0.0"), Address(socket.AF_INET6, "::"))


def port(host: Host) -> Iterator[Finding]:
    """The rendezvous port (MASTER_PORT) on this node is held by another process.

    The ranks' store, or the rendezvous, listens there. When the port is taken the launch fails with "Address already in
    use". Or worse, the ranks join the store of the other process, and wait for each other without end.

    How it is concluded: a socket is bound to the port as torch's store does it, with SO_REUSEADDR, on all addresses and
    on the one that the master address names, IPv4 and IPv6. Connections in TIME_WAIT are no fault: such a bind passes
    over them. The holder comes from /proc/net/tcp; of other users' processes only the user can be told. Only a port
    that was asked for is checked, and only on the node that has to listen. It is a warning where an agent of the same
    job may be the holder: c10d with several nodes, two of them on one machine.

    What to do: end the holder, if it is left over from an earlier run; else choose another port, or none with
    --standalone, so that a free one is taken.
    """
    job = host.job
    if not job.master_port:
        yield skipped("SL102", "no port was asked for: a free one will be taken")
        return
    try:
        ours = of_this_node(host, master_addresses(host))
    except (OSError, UnicodeError) as error:
        yield unchecked(
            "SL102", f"port {job.master_port} was not tried", f"{job.master_addr} does not resolve: {error}"
        )
        return
    if not listens_here(host, ours):
        yield skipped(
            "SL102", f"port {job.master_port} belongs to {job.master_addr or 'the first node'}, not to this node"
        )
        return
    for address in (*WILDCARDS, *ours):
        try:
            host.bind(address.family, address.ip, job.master_port)
        except OSError as error:
            # A machine without IPv6 has none of its addresses and nothing that could hold the port there.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                yield _taken(host, job.master_port, address, error)
                return
    yield ok("SL102", f"port {job.master_port} is free")


def _taken(host: Host, port: int, address: Address, error: OSError) -> Finding:
    if error.errno != errno.EADDRINUSE:
        remedy = "choose a port above 1023" if error.errno == errno.EACCES else "choose another port"
        reason = f"binding {address} failed: {error.strerror}"
        return Finding(
            code="SL102", severity="error", summary=f"port {port} cannot be used", because=(reason,), remedy=remedy
        )
    holders = host.port_holders(port)
    mine = [holder.process.pid for holder in holders if holder.process]
    remedy = "choose another port (--master-port; --standalone takes a free one)"
    return Finding(
        code="SL102",
        severity="warning" if host.job.port_shared else "error",
        summary=f"port {port} is in use on this node",
        because=tuple(map(str, holders)) or (f"binding {address} failed, and no process to be seen holds it",),
        remedy=f"end the holder (kill {mine[0]}), or {remedy}" if mine else remedy,
    )

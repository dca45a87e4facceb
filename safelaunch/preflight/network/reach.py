"""Check that this node can reach the one where all meet."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Address, Dialed, Host
from safelaunch.preflight.network.endpoint import master_addresses, of_this_node

# The kernel repeats the first packet after 1 s, and gives an address up where nobody answers to it after 3 s (three
# requests, arp(7)): with one second more the two are told apart.
DIAL_DEADLINE_S = 4.0
MOST_ADDRESSES = 3

WORDS = {
    errno.ETIMEDOUT: "no answer: a firewall drops it on the way, or the machine is down",
    errno.EHOSTUNREACH: "no machine answers at this address, or a firewall forbids it",
    errno.ENETUNREACH: "this node has no route there",
    errno.EACCES: "this node's own firewall or security module forbids it",
    errno.EPERM: "this node's own firewall or security module forbids it",
}


def reach(host: Host) -> Iterator[Finding]:
    """This node cannot reach the rendezvous endpoint, where all nodes of the job meet.

    The launch would wait for the others until its rendezvous times out, after minutes, and say nothing about a network.

    How it is concluded: a TCP connection to the endpoint, from any node that does not have its address, with 4 s for
    an answer. "Connection refused" is a pass: the machine answers, and nobody listens before the launch. No answer at
    all, no route, or a host that is unreachable is an error. That all nodes can reach one another, on the ports that
    NCCL and gloo choose, is not concluded from it.

    What to do: correct the endpoint or --master-addr (a name may resolve to an address of the wrong network), or have
    an administrator open TCP between the nodes: the port, and those from net.ipv4.ip_local_port_range, which NCCL and
    gloo use.
    """
    job = host.job
    port = job.endpoint_port or job.master_port
    if not job.master_addr or not port:
        yield skipped("SL133", "no endpoint of another node was given")
        return
    try:
        addresses = master_addresses(host)
    except (OSError, UnicodeError):
        yield unchecked("SL133", f"{job.master_addr} was not dialled", "it does not resolve (see SL103)")
        return
    if of_this_node(host, addresses):
        yield skipped("SL133", f"{job.master_addr} is this node")
        return
    failed = []
    for address in addresses[:MOST_ADDRESSES]:
        answer = host.dial(address, port, DIAL_DEADLINE_S)
        if answer.errno in (0, errno.ECONNREFUSED):
            listens = "somebody listens there" if answer.errno == 0 else "nobody listens there yet"
            yield ok("SL133", f"{job.master_addr} answers on port {port}, {listens}")
            return
        failed.append(_line(address, port, answer))
    yield Finding(
        code="SL133",
        severity="error",
        summary=f"port {port} of {job.master_addr} cannot be reached from this node",
        because=tuple(failed),
        remedy="correct the endpoint (--master-addr, --rdzv-endpoint), or have an administrator open TCP between the "
        "nodes",
        where=f"{host.name()} to {job.master_addr}:{port}",
    )


def _line(address: Address, port: int, answer: Dialed) -> str:
    name = errno.errorcode.get(answer.errno, str(answer.errno))
    words = WORDS.get(answer.errno, os.strerror(answer.errno))
    there = f"[{address}]:{port}" if ":" in address.ip else f"{address}:{port}"
    return f"{answer.source or 'this node'} -> {there}, TCP: {words} ({name})"

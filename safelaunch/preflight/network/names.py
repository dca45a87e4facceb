"""Check that host names resolve."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok
from safelaunch.preflight.machine.host import Address, Host
from safelaunch.preflight.network.endpoint import RESOLVE_DEADLINE_S, master_addresses, of_this_node

# A healthy resolver answers within milliseconds; each rank pays this delay again at its start.
RESOLVE_SLOW_S = 3.0
MASTER_RETRY_S = 15.0  # an estimate


def names(host: Host) -> Iterator[Finding]:
    """A host name does not resolve: this node's own, or the master address.

    Ranks look up the master address to find each other. torch looks up this node's own name to tell others where it is
    (gloo, and the c10d rendezvous by `socket.getfqdn`). A name that does not resolve shows as a connection that never
    comes about; one that the resolver is slow about blocks each rank at its start (pytorch issues 150532, 73656 and
    73380).

    How it is concluded: both names are looked up as a rank would do it, with a deadline of 12 s, past which the usual
    resolver has given up too (resolv.conf(5): 5 s, two attempts). A master address that does not resolve is an error,
    in a job of several nodes only after 15 s: the name of a pod or of a new machine may come a little later. This
    node's own name is an error where there are several nodes. It is a warning on one alone, where torch falls back to
    the loopback address, and where --local-addr was given. A lookup of over 3 s is a warning, and so is a master
    address that means "this very machine" (127.x) in a job of several nodes: it means another machine on each; and so
    is one that is not this node's although it has rank 0, unless a service forwards it.

    What to do: correct --master-addr, DNS, or /etc/hosts. For the own name, a line `ADDRESS NAME` in /etc/hosts is
    enough; --local-addr tells torch elastic what to use instead.
    """
    several = host.job.max_nodes > 1
    faults = [*_own_name(host, severe=several and not host.job.local_addr)]
    if host.job.master_addr:
        faults += _master_address(host, several)
    yield from faults
    if not faults:
        known = [host.name(), *filter(None, [host.job.master_addr])]
        yield ok("SL103", " and ".join(dict.fromkeys(known)) + (" resolves" if len(set(known)) == 1 else " resolve"))


def _own_name(host: Host, *, severe: bool) -> Iterator[Finding]:
    name = host.name()
    begin = host.monotonic()
    try:
        host.resolve(name, RESOLVE_DEADLINE_S)
        host.canonical_name(RESOLVE_DEADLINE_S)
    except (OSError, UnicodeError) as error:
        yield Finding(
            code="SL103",
            severity="error" if severe else "warning",
            summary=f"this node's own name, {name}, does not resolve",
            because=(_reason(error),),
            remedy=f"add `ADDRESS {name}` to /etc/hosts, or give --local-addr ADDRESS",
        )
        return
    yield from _slow(host, name, begin)


def _master_address(host: Host, several: bool) -> Iterator[Finding]:
    name = host.job.master_addr
    begin = host.monotonic()
    try:
        addresses = _patiently(host, MASTER_RETRY_S if several else 0.0)
    except (OSError, UnicodeError) as error:
        yield Finding(
            code="SL103",
            severity="error",
            summary=f"the master address {name} does not resolve on this node",
            because=(_reason(error),),
            remedy="correct --master-addr (or the rendezvous endpoint), DNS or /etc/hosts",
        )
        return
    yield from _slow(host, name, begin)
    first = several and host.job.node_rank == 0 and not host.job.port_shared
    if first and not of_this_node(host, addresses):
        yield Finding(
            code="SL103",
            severity="warning",
            summary=f"the master address {name} is not an address of this node, which has rank 0",
            because=(f"it is {', '.join(map(str, addresses))}; rank 0 listens here, and the others look for it there",),
            remedy="give an address of this node, or start rank 0 on the node that has it",
        )
    if several and all(address.is_loopback for address in addresses):
        yield Finding(
            code="SL103",
            severity="warning",
            summary=f"the master address {name} is a loopback address, another machine on each node",
            because=("the job spans several nodes, and a loopback address reaches only the node itself",),
            remedy="give an address of the first node that the others can reach, or correct /etc/hosts",
        )


def _patiently(host: Host, seconds: float) -> tuple[Address, ...]:
    """The addresses of the master, asked for again while the resolver knows none."""
    until = host.monotonic() + seconds
    while True:
        try:
            return master_addresses(host)
        except socket.gaierror:
            if host.monotonic() >= until:
                raise
            host.sleep(1.0)


def _slow(host: Host, name: str, begin: float) -> Iterator[Finding]:
    elapsed_s = host.monotonic() - begin
    if elapsed_s > RESOLVE_SLOW_S:
        yield Finding(
            code="SL103",
            severity="warning",
            summary=f"looking up {name} took {elapsed_s:.1f} s",
            because=("each rank does it again at its start",),
            remedy="look for a dead name server in /etc/resolv.conf, or put the name into /etc/hosts",
        )


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"the resolver says: {error.strerror}"
    return f"the resolver gave {error}"

"""Check that nobody can be given the rendezvous port by chance."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.network.endpoint import listens_here, master_addresses, of_this_node

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
# Offered in place of a port in the range: torchrun's default, then one further down and one at the top.
FREE_TO_CHOOSE = (29500, 14500, 61500)


def port_range(host: Host) -> Iterator[Finding]:
    """The rendezvous port lies in the range from which the kernel takes the ports of outgoing connections.

    Any program's connection may be given it: "Address already in use", in one launch of many, and next time it works.
    Ranks of this job open such connections themselves, before the store of a restart listens again.

    How it is concluded: net.ipv4.ip_local_port_range and ip_local_reserved_ports. Only a port that was asked for, and
    only on the node that has to listen, is looked at. It is a warning, and a note where the range leaves no other port.

    What to do: choose a port outside of the range (on most machines below 32768), or have an administrator reserve it:
    `sysctl net.ipv4.ip_local_reserved_ports=PORT`. `--standalone` takes a free port for jobs of one node.
    """
    port = host.job.master_port
    if not port:
        yield skipped("SL132", "no port was asked for")
        return
    try:
        low, high = map(int, host.root.read(RANGE).split())
        reserved = _ports(host.root.read(RESERVED))
    except (OSError, ValueError) as error:
        yield unchecked("SL132", "the range of ports for outgoing connections is not known", str(error))
        return
    if not low <= port <= high or port in reserved:
        yield ok("SL132", f"port {port} is not one that the kernel gives away")
        return
    try:
        here = listens_here(host, of_this_node(host, master_addresses(host)))
    except (OSError, UnicodeError):
        here = False  # SL103 tells that
    if not here:
        yield skipped("SL132", f"port {port} is for another node to listen on")
        return
    better = next((choice for choice in FREE_TO_CHOOSE if not low <= choice <= high), None)
    reserve = f"have an administrator reserve it: sysctl net.ipv4.ip_local_reserved_ports={port}"
    yield Finding(
        code="SL132",
        severity="warning" if better else "note",
        summary=f"port {port} may be given to any outgoing connection before the job listens on it",
        because=(f"the kernel takes their ports from {low} to {high} ({RANGE})",),
        remedy=f"choose a port outside of the range, such as {better}, or {reserve}" if better else reserve,
    )


def _ports(text: str) -> set[int]:
    """`8080,9148-9150` -> {8080, 9148, 9149, 9150}."""
    found: set[int] = set()
    for entry in text.strip().split(","):
        first, _, last = entry.partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found

"""Whose the master address is: shared by the checks of it."""

from __future__ import annotations

from safelaunch.preflight.machine.host import Address, Host

# resolv.conf(5): a name server gets 5 s and two attempts. A resolver that is not back after that is not coming.
RESOLVE_DEADLINE_S = 12.0


def master_addresses(host: Host) -> tuple[Address, ...]:
    """What the master address of the job resolves to; nothing where none was given. Raises OSError or UnicodeError."""
    return host.resolve(host.job.master_addr, RESOLVE_DEADLINE_S) if host.job.master_addr else ()


def of_this_node(host: Host, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    return tuple(address for address in addresses if host.has_address(address))


def listens_here(host: Host, ours: tuple[Address, ...]) -> bool:
    """Whether this node has to listen on the port: it has one of the addresses, or it is the only or first one."""
    job = host.job
    return bool(ours) or job.max_nodes == 1 or (not job.master_addr and job.node_rank == 0)

"""Runs in: the probes. The network interfaces of this node, and at which of them its ranks would be reached."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence

from safelaunch.preflight.machine.host import Address


def interfaces(*, up: bool = False) -> dict[str, tuple[str, ...]]:
    """The addresses of each interface; of all, or of those that are up."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    found = {
        str(name): tuple(known.address.partition("%")[0] for known in addresses if known.family in families)
        for name, addresses in psutil.net_if_addrs().items()
    }
    states = psutil.net_if_stats() if up else {}
    return {name: addresses for name, addresses in found.items() if not up or (name in states and states[name].isup)}


def offered(
    environ: Mapping[str, str], uses_gpu: bool, met_at: Collection[str], known: Mapping[str, Sequence[str]]
) -> str:
    """The address of the interface that the ranks are told to take (NCCL_SOCKET_IFNAME, or GLOO_SOCKET_IFNAME in a job
    without GPUs); empty where it is that by which this node came, or where none is named.

    NCCL takes `eth,ib` for beginnings of names, `=eth0` for whole ones, and `^docker` for those that are left out, as
    its user guide has it; gloo takes whole names.

    Args:
        environ: what the ranks will see.
        uses_gpu: whether the job does.
        met_at: the addresses by which this node is known to the others.
        known: the addresses of each interface that is up.
    """
    text = environ.get("NCCL_SOCKET_IFNAME" if uses_gpu else "GLOO_SOCKET_IFNAME", "").strip()
    if not text:
        return ""
    but = uses_gpu and text.startswith("^")
    text = text[but:]
    whole = text.startswith("=") or not uses_gpu
    names = [name.partition(":")[0] for name in text.removeprefix("=").split(",") if name]

    def taken(interface: str) -> bool:
        return any(interface == name if whole else interface.startswith(name) for name in names) != but

    here = [name for name, addresses in known.items() if set(addresses) & set(met_at) and not _loopback(addresses)]
    if any(map(taken, here)) or (but and not here):
        return ""
    family = 6 if uses_gpu and environ.get("NCCL_SOCKET_FAMILY", "") == "AF_INET6" else 4
    usable = [
        address
        for name, addresses in known.items()
        if taken(name) and not (but and _loopback(addresses))
        for address in sorted(addresses, key=lambda address: (":" in address) != (family == 6))
        if not address.startswith("fe80:")
    ]
    return usable[0] if usable else ""


def interface_to(peer_ip: str) -> str:
    """The network interface by which this node reaches another; empty where it has no way there."""
    family = socket.AF_INET6 if ":" in peer_ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer_ip, 9))  # sends nothing
        mine = probe.getsockname()[0].partition("%")[0]
    return next((name for name, addresses in interfaces().items() if mine in addresses), "")


def _loopback(addresses: Collection[str]) -> bool:
    return any(Address(0, address).is_loopback for address in addresses)

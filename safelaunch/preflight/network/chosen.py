"""The interfaces that NCCL and gloo will choose, as far as their rules are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safelaunch.preflight.machine.host import Address

NCCL_NAME = "NCCL_SOCKET_IFNAME"
GLOO_NAME = "GLOO_SOCKET_IFNAME"

# In this order, each only where the ones before gave nothing; `^` is all but these. NVIDIA/nccl, src/misc/socket.cc and
# src/os/linux.cc (ncclFindInterfaces); virbr came last with 2.27.
NCCL_ORDER = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")


def nccl_interface(environ: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> str:
    """The interface at which NCCL's processes meet, and by whose word; its data may take InfiniBand or several.

    Args:
        environ: of the ranks.
        known: the addresses of each interface that is up, in the kernel's order.
    """
    family = environ.get("NCCL_SOCKET_FAMILY", "")
    usable = [name for name, addresses in known.items() if any(_fits(address, family) for address in addresses)]
    asked = environ.get(NCCL_NAME, "")
    if asked:
        found = _matching(asked, usable)
        return f"{found[0]} ({NCCL_NAME}={asked})" if found else f"none: {NCCL_NAME}={asked} names no interface here"
    if environ.get("NCCL_COMM_ID"):
        return "unknown: NCCL_COMM_ID decides"
    for rule in NCCL_ORDER:
        found = _matching(rule, usable)
        if found:
            return f"{found[0]} (NCCL's own choice)"
    return "none: no interface has an address"


def _fits(address: str, family: str) -> bool:
    """NCCL takes both families, but of IPv6 neither link-local nor loopback addresses."""
    if ":" not in address:
        return bool(address) and family != "AF_INET6"
    return family != "AF_INET" and address != "::1" and not address.startswith("fe80:")


def _matching(rule: str, names: Sequence[str]) -> list[str]:
    """NCCL's user guide: beginnings of names, whole names behind `=`, all others behind `^` (and `^=`)."""
    but = rule.startswith("^")
    rule = rule[but:]
    whole = rule.startswith("=")
    words = [word.partition(":")[0] for word in rule.removeprefix("=").split(",") if word]

    def named(name: str) -> bool:
        return any(name == word if whole else name.startswith(word) for word in words)

    return [name for name in names if named(name) != but]


def gloo_interface(
    environ: Mapping[str, str], own_name: Sequence[Address] | str, known: Mapping[str, Sequence[str]]
) -> str:
    """The interface that gloo's pairs connect over, and by whose word.

    Source: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (createDefaultDevice): the first address of the host's own
    name that can be bound, else loopback.

    Args:
        environ: of the ranks.
        own_name: the addresses that the host's name resolves to, or why it was not resolved.
        known: the addresses of each interface that is up.
    """
    asked = environ.get(GLOO_NAME, "")
    if asked:
        missing = [name for name in asked.split(",") if name not in known]
        return f"none: {GLOO_NAME}={asked} names no interface here" if missing else f"{asked} ({GLOO_NAME})"
    if isinstance(own_name, str):
        return f"unknown: {own_name}"
    for address in own_name:
        for name, addresses in known.items():
            if address.ip in addresses:
                return f"{name} (has the address {address.ip} of the host's name)"
        if address.is_loopback and "lo" in known:
            return f"lo (the host's name is {address.ip})"  # all of 127.0.0.0/8 can be bound
    return "lo (the host's name is no address of this node)"

"""Check that the InfiniBand and RoCE ports are up and as fast as their peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median_high, median_low

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped
from safelaunch.preflight.machine import infiniband
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.infiniband import Port
from safelaunch.sizes import plural

NO_PORT = "no InfiniBand or RoCE device on this machine"
# Physical states of a port that should be up, from the InfiniBand specification (PortPhysicalState).
SIGNS = {
    "Polling": "no signal from the other end",
    "Disabled": "its interface is switched on and has no carrier",
    "LinkUp": "linked, but no subnet manager has made it active",
    "LinkErrorRecovery": "the link fails and recovers",
}


def ports(host: Host) -> Iterator[Finding]:
    """An InfiniBand or RoCE port is down while its peers are up, or slower than they are.

    NCCL leaves a port that is down out, without a word. The ranks that would have used it share the ports of others, or
    the nodes disagree on what there is. The job is slow, or hangs at its first collective (NVIDIA/nccl issue 2428).

    How it is concluded: state, phys_state and rate in /sys/class/infiniband, and comparison. Peers are the same port of
    boards of the same kind: a second port that is unused on all of them is unused by design. So are management cards
    with another link layer, ports that are switched off, and functions of a hypervisor. A port that is not ACTIVE while
    more of its peers are up than down is an error where the job uses GPUs on several nodes; otherwise, and where the
    peers are divided, it is a warning. Of InfiniBand a rate below that of the peers is a warning; of Ethernet, where
    ports of one kind may serve different networks, a rate below that of most. The numbers of ports and rates that
    leptonai/gpud and Azure NHC fix for each machine type are not needed for that. Ports that NCCL_IB_HCA or
    NCCL_IB_DISABLE take out are left out. Error counters are not read: on functions with restricted rights each read
    floods the kernel's log (leptonai/gpud issue 1164).

    What to do: have an administrator look at cable, transceiver and switch port (`ibstat`, `mlxlink`); a port that
    stays in INIT or ARMED has no subnet manager. A port that is meant to be unused is left out by NCCL_IB_HCA, for
    example `NCCL_IB_HCA=^=mlx5_3:1`.
    """
    known = infiniband.read(host.root)
    chosen = infiniband.selected(known, host.environ)
    if not known:
        yield skipped("SL130", NO_PORT)
    elif not chosen:
        yield _none_chosen(host, known)
    else:
        faults = [*_faults(host, chosen)] or [*_nothing_up(host, chosen)]
        yield from faults or [ok("SL130", _well(chosen, left_out=len(known) - len(chosen)))]


def _none_chosen(host: Host, known: Sequence[Port]) -> Finding:
    if infiniband.disabled(host.environ):
        return skipped("SL130", "NCCL_IB_DISABLE is set: InfiniBand and RoCE are not used")
    setting = host.environ.get("NCCL_IB_HCA", "")
    if setting.startswith("^") or not _crucial(host):
        return skipped("SL130", f"NCCL_IB_HCA={setting} leaves all ports out")
    return Finding(
        code="SL130",
        severity="warning",
        summary=f"NCCL_IB_HCA={setting} names no port of this machine: NCCL would use TCP",
        because=("the ports are " + ", ".join(map(str, known)),),
        remedy="correct NCCL_IB_HCA; beginnings of names are enough, such as mlx5",
    )


def down(chosen: Sequence[Port]) -> list[Port]:
    """The ports that are down and should be up: their peers are, or something is connected and nobody manages it."""
    return [port for peers in _peers(chosen) for port in _down_among(peers)]


def _down_among(peers: Sequence[Port]) -> list[Port]:
    # All down alike: nothing is connected there.
    connected = any(port.up for port in peers)
    return [
        port
        for port in peers
        if port.enabled and not port.up and not port.virtual and (connected or port.physical == "LinkUp")
    ]


def _faults(host: Host, chosen: Sequence[Port]) -> Iterator[Finding]:
    for peers in _peers(chosen):
        up = [port for port in peers if port.up]
        dark = sum(port.enabled and not port.up and not port.virtual for port in peers)
        for port in _down_among(peers):
            yield _down(host, port, len(up), dark)
        for port in up:
            usual = _usual_rate(up)
            if port.rate < usual:
                yield Finding(
                    code="SL130",
                    severity="warning",
                    summary=f"{port} runs at {port.rate:g} Gb/s, {_count(up, port)} at {usual:g} Gb/s",
                    because=("the slowest port sets the pace of every collective between nodes",),
                    remedy="have an administrator look at its cable, transceiver and switch port",
                    where=port.where,
                )


def _down(host: Host, port: Port, up: int, down: int) -> Finding:
    severe = _crucial(host) and up > down
    sign = SIGNS.get(port.physical)
    because = [f"state {port.state}, physical state {port.physical}" + (f": {sign}" if sign else "")]
    if not _crucial(host):
        because.append("this job does without it: " + _why_not_crucial(host))
    elif not severe and up:
        because.append("its peers are divided, so it may be meant to be unused")
    peers = f", while {plural(up, 'of its peers' if up == 1 else 'peer')} {'is' if up == 1 else 'are'} up" if up else ""
    return Finding(
        code="SL130",
        severity="error" if severe else "warning",
        summary=f"{port} is down{peers}" if port.physical != "LinkUp" else f"{port} is linked but not active{peers}",
        because=tuple(because),
        remedy=(
            "have an administrator look at its cable, transceiver and switch port; if it is meant to be unused, leave "
            f"it out: NCCL_IB_HCA=^={port}"
            if port.physical != "LinkUp"
            else "have an administrator start a subnet manager for its network (opensm, or that of the switch)"
        ),
        where=port.where,
    )


def _nothing_up(host: Host, chosen: Sequence[Port]) -> Iterator[Finding]:
    idle = [port for port in chosen if port.enabled and not port.virtual]
    if idle and _crucial(host) and not any(port.up for port in chosen):
        yield Finding(
            code="SL130",
            severity="warning",
            summary=f"not one of {plural(len(idle), 'InfiniBand or RoCE port')} is up: NCCL will use TCP",
            because=tuple(f"{port}: {port.state}, {port.physical}" for port in idle),
            remedy="have an administrator look at the network; NCCL_IB_DISABLE=1 says that TCP is meant",
        )


def _well(chosen: Sequence[Port], left_out: int) -> str:
    up = [port for port in chosen if port.up]
    rates = sorted({port.rate for port in up}, reverse=True)
    text = f"{len(up)} of {plural(len(chosen), 'port')} up"
    if rates:
        text += " at " + " and ".join(f"{rate:g}" for rate in rates) + " Gb/s"
    if len(up) < len(chosen):
        text += ", the others unused by design"
    return text + (f"; {left_out} left out by NCCL_IB_HCA" if left_out else "")


def _peers(chosen: Sequence[Port]) -> list[list[Port]]:
    """Ports that should be alike: same link layer, kind of board, number of the port and function of the board."""
    groups: dict[tuple[object, ...], list[Port]] = defaultdict(list)
    for port in chosen:
        function = "virtual" if port.virtual else port.pci.rpartition(".")[2]
        groups[port.link_layer, port.model, port.number, function].append(port)
    return list(groups.values())


def _usual_rate(up: Sequence[Port]) -> float:
    rates = [port.rate for port in up]
    return median_low(rates) if up[0].link_layer == "Ethernet" else median_high(rates)


def _count(up: Sequence[Port], port: Port) -> str:
    faster = sum(other.rate > port.rate for other in up)
    return "its peer" if faster == 1 else f"{faster} peers"


def _crucial(host: Host) -> bool:
    return host.job.uses_gpu and host.job.max_nodes > 1


def _why_not_crucial(host: Host) -> str:
    return "it runs on one node" if host.job.uses_gpu else "it does not use GPUs"

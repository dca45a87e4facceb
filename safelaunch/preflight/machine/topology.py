"""How GPUs and network cards are connected, from NVML and sysfs, and drawn as `nvidia-smi topo -m` draws it."""

from __future__ import annotations

from itertools import takewhile

from safelaunch.model import Device, Topology
from safelaunch.preflight.machine.nvml import Gpu, Pair, Snapshot
from safelaunch.preflight.machine.root import Root

PCI_DEVICES = "/sys/bus/pci/devices"
NETWORK_CARDS = "/sys/class/infiniband"

SELF = "X"
# nvmlGpuTopologyLevel_t.
LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def topology(root: Root, snapshot: Snapshot) -> Topology | None:
    """The matrix of all GPUs that answer and all network cards; None without GPUs."""
    gpus = snapshot.read
    if not gpus:
        return None
    devices = [device(root, f"GPU{gpu.index}", gpu.name, gpu.address) for gpu in gpus] + _network_cards(root)
    pairs = {(pair.a, pair.b): pair for pair in snapshot.pairs}

    def link(row: int, column: int) -> str:
        if row == column:
            return SELF
        first, second = sorted((row, column))
        if second >= len(gpus):
            return by_path(devices[first], devices[second])
        pair = pairs.get((gpus[first].index, gpus[second].index))
        return _between_gpus(gpus[first], gpus[second], pair) or by_path(devices[first], devices[second])

    places = range(len(devices))
    return Topology(tuple(devices), tuple(tuple(link(row, column) for column in places) for row in places))


def device(root: Root, label: str, name: str, address: str) -> Device:
    """A PCI device with what sysfs says of its place."""
    folder = f"{PCI_DEVICES}/{address}"
    node = root.text(f"{folder}/numa_node")
    number = int(node) if node.lstrip("-").isdecimal() else -1  # -1: the firmware does not say
    path = root.realpath(folder).split("/")
    # /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0
    below = [part for part in path if ":" in part] if address and root.exists(folder) else []
    return Device(
        label, name, address, number if number >= 0 else None, root.text(f"{folder}/local_cpulist"), tuple(below)
    )


def by_path(one: Device, other: Device) -> str:
    """How two PCI devices are connected, from their paths below the host bridges."""
    if not (one.pci_path and other.pci_path):
        return "?"
    common = len(list(takewhile(lambda parts: parts[0] == parts[1], zip(one.pci_path, other.pci_path, strict=False))))
    if common == 0:
        return "NODE" if one.numa_node == other.numa_node else "SYS"
    if common == 1:  # the host bridge itself
        return "PHB"
    # Below the last bridge in common: at most one port of a switch, and the device.
    return "PIX" if max(len(one.pci_path), len(other.pci_path)) - common <= 2 else "PXB"


def nvlinks(one: Gpu, other: Gpu) -> int:
    """The active NVLinks by which two GPUs are known to reach each other, directly or over switches."""
    direct = max(_leading_to(one, other.address), _leading_to(other, one.address))
    return direct or min(_to_switches(one), _to_switches(other))


def hidden_nvlinks(one: Gpu, other: Gpu) -> int:
    """The active NVLinks by which two GPUs may reach each other as far as is known: it is not told where they lead."""
    return min(_leading_anywhere(one, other), _leading_anywhere(other, one))


def may_lead(gpu: Gpu, other: Gpu) -> bool:
    """Whether active NVLinks of a GPU may lead to another one: over switches, or to where it is not told."""
    return bool(_to_switches(gpu) or _leading_anywhere(gpu, other))


def _leading_to(gpu: Gpu, address: str) -> int:
    return sum(
        link.active and link.kind != "switch" and bool(address) and link.address == address for link in gpu.links
    )


def _to_switches(gpu: Gpu) -> int:
    return sum(link.active and link.kind == "switch" for link in gpu.links)


def _leading_anywhere(gpu: Gpu, other: Gpu) -> int:
    unknown = [not link.kind or (link.kind == "gpu" and not (link.address and other.address)) for link in gpu.links]
    return sum(link.active and hidden for link, hidden in zip(gpu.links, unknown, strict=True))


def _between_gpus(one: Gpu, other: Gpu, pair: Pair | None) -> str:
    count = nvlinks(one, other)
    if not count and pair and pair.p2p == 0:
        # A virtual machine may hide what the links lead to, but not that peers are reached over them.
        count = hidden_nvlinks(one, other)
    if count:
        return f"NV{count}"
    return LEVELS.get(pair.ancestor, "") if pair and pair.ancestor is not None else ""


def _network_cards(root: Root) -> list[Device]:
    cards = []
    for number, name in enumerate(sorted(root.names(NETWORK_CARDS))):
        address = root.realpath(f"{NETWORK_CARDS}/{name}/device").rpartition("/")[2]
        cards.append(device(root, f"NIC{number}", name, address))
    return cards

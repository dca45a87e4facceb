"""The topology of a node, drawn as `nvidia-smi topo -m` draws it."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.model import Device, Topology
from safelaunch.printable import Line, whole

LEGEND = {
    "X": "the device itself",
    "NV#": "# NVLinks",
    "PIX": "one PCIe switch at most",
    "PXB": "several PCIe switches, but not the host bridge",
    "PHB": "the PCIe host bridge (usually the CPU)",
    "NODE": "PCIe and the interconnect between host bridges of one NUMA node",
    "SYS": "PCIe and the interconnect between NUMA nodes",
    "?": "not known",
}


def draw(topology: Topology) -> list[Line]:
    """The matrix as lines, with the meaning of the symbols that occur and the names of the network cards."""
    devices = topology.devices
    head = ["", *(device.label for device in devices), "CPU affinity", "NUMA node"]
    rows = [
        [
            entry.label,
            *links,
            *(("", "") if entry.label.startswith("NIC") else (entry.cpus or "?", _node(entry))),
        ]
        for entry, links in zip(devices, topology.links, strict=True)
    ]
    lines = _table([head, *rows])
    lines += ["", "Legend:"]
    occurring = {"NV#" if symbol.startswith("NV") else symbol for row in topology.links for symbol in row}
    lines += [f"  {symbol:<4} = {meaning}" for symbol, meaning in LEGEND.items() if symbol in occurring]
    cards = [entry for entry in devices if entry.label.startswith("NIC")]
    if cards:
        lines += ["", "Network cards:", *(f"  {entry.label} = {entry.name}" for entry in cards)]
    return [whole(row) for row in lines]


def _node(device: Device) -> str:
    return "?" if device.numa_node is None else str(device.numa_node)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

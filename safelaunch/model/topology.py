"""How the GPUs and network cards of a node are connected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU or a network card.

    `label` is its short name in the matrix (`GPU0`, `NIC0`), `name` its model or its name in the system (`mlx5_0`),
    `address` its PCI address as sysfs has it. `numa_node` is None where the machine does not say, `cpus` the CPUs next
    to it as the kernel lists them (`0-31,64-95`).
    """

    label: str
    name: str
    address: str = ""
    numa_node: int | None = None
    cpus: str = ""
    pci_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topology:
    """A matrix: `links[i][j]` is how device i is connected to device j, in the symbols of `nvidia-smi topo -m`."""

    devices: tuple[Device, ...]
    links: tuple[tuple[str, ...], ...]

    def device(self, label: str) -> Device | None:
        return next((device for device in self.devices if device.label == label), None)

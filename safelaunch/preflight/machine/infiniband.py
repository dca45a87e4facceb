"""The ports of the RDMA devices (InfiniBand, RoCE, EFA), from /sys/class/infiniband.

Error counters are not read: on functions with restricted rights each read makes the driver write ACCESS_REG errors
into the kernel's log (leptonai/gpud issue 1164).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.preflight.machine.root import Root

DEVICES = "/sys/class/infiniband"
IFF_UP = 1  # of a network interface's flags: an administrator has switched it on


@dataclass(frozen=True)
class Port:
    """One port. `state` and `physical` are the kernel's words (`ACTIVE`, `LinkUp`), `rate` is in Gb/s, `model` tells
    boards of one kind, `virtual` a function that a hypervisor hands out. `enabled` is false where the port is switched
    off, which looks like a dead link on Ethernet."""

    device: str
    number: int
    state: str = ""
    physical: str = ""
    rate: float = 0.0
    link_layer: str = ""
    model: str = ""
    pci: str = ""
    virtual: bool = False
    enabled: bool = True

    def __str__(self) -> str:
        return f"{self.device}:{self.number}"

    @property
    def up(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def where(self) -> str:
        kind = "RoCE" if self.link_layer == "Ethernet" else self.link_layer
        return ", ".join(filter(None, [f"{self.device} port {self.number}", self.pci and f"PCI {self.pci}", kind]))


def read(root: Root) -> tuple[Port, ...]:
    """All ports of the machine, in order."""
    return tuple(_port(root, device, number) for device in _natural(root, DEVICES) for number in _numbers(root, device))


def selected(ports: Sequence[Port], environ: Mapping[str, str]) -> tuple[Port, ...]:
    """The ports that NCCL would look at by NCCL_IB_DISABLE and NCCL_IB_HCA.

    `mlx5_0,mlx5_1:1` lists beginnings of names, with a port each where one is given; `=` before the list makes them
    whole names, `^` before that turns it into what is left out (NCCL user guide, environment variables).
    """
    if disabled(environ):
        return ()
    text = environ.get("NCCL_IB_HCA", "")
    but = text.startswith("^")
    text = text[but:]
    whole = text.startswith("=")
    entries = [entry for entry in text[whole:].split(",") if entry]
    return tuple(port for port in ports if (not entries or any(_named(port, e, whole) for e in entries)) != but)


def disabled(environ: Mapping[str, str]) -> bool:
    """Whether NCCL is told to leave InfiniBand and RoCE alone."""
    text = environ.get("NCCL_IB_DISABLE", "").strip()
    return text.lstrip("-").isdecimal() and int(text) != 0


def _named(port: Port, entry: str, whole: bool) -> bool:
    name, _, number = entry.partition(":")
    same = port.device == name if whole else port.device.startswith(name)
    return same and (not number.isdecimal() or int(number) == port.number)


def _port(root: Root, device: str, number: int) -> Port:
    folder = f"{DEVICES}/{device}"
    here = f"{folder}/ports/{number}"
    link_layer = root.text(f"{here}/link_layer")
    physical = _word(root.text(f"{here}/phys_state"))
    return Port(
        device,
        number,
        state=_word(root.text(f"{here}/state")),
        physical=physical,
        rate=_rate(root.text(f"{here}/rate")),
        link_layer=link_layer,
        model=root.text(f"{folder}/board_id") or root.text(f"{folder}/hca_type"),
        pci=_pci(root, folder),
        virtual=root.exists(f"{folder}/device/physfn"),
        enabled=_switched_on(root, folder) if link_layer == "Ethernet" else physical != "Disabled",
    )


def _switched_on(root: Root, folder: str) -> bool:
    """Whether an Ethernet port's interface is on. A container does not see the interfaces of others: those are not
    for it to judge."""
    flags = [root.text(f"{folder}/device/net/{name}/flags") for name in root.names(f"{folder}/device/net")]
    return any(int(text, 16) & IFF_UP for text in flags if re.fullmatch("0x[0-9a-fA-F]+", text))


def _pci(root: Root, folder: str) -> str:
    try:
        address = root.readlink(f"{folder}/device").rpartition("/")[2]
    except OSError:
        return ""
    return address if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address) else ""


def _word(text: str) -> str:
    """`4: ACTIVE` -> `ACTIVE`."""
    return text.partition(":")[2].strip() or text


def _rate(text: str) -> float:
    """`400 Gb/sec (4X NDR)` -> 400.0."""
    found = re.match(r"[0-9.]+", text)
    return float(found[0]) if found else 0.0


def _numbers(root: Root, device: str) -> Iterator[int]:
    yield from sorted(int(name) for name in root.names(f"{DEVICES}/{device}/ports") if name.isdecimal())


def _natural(root: Root, path: str) -> list[str]:
    """Names in the order of their numbers: mlx5_2 before mlx5_10."""
    return sorted(root.names(path), key=lambda name: [int(n) if n.isdecimal() else n for n in re.split(r"(\d+)", name)])

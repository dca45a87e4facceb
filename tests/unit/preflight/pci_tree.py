"""The part of sysfs that tells where GPUs and network cards are, as on a node with two sockets."""

from __future__ import annotations

from pathlib import Path

from fake_host import write

SOCKETS = ("0-31,64-95", "32-63,96-127")


def address(gpu: int) -> str:
    """The PCI address that fake_nvml.c gives a GPU."""
    return f"0000:{0x10 + gpu:02x}:00.0"


def attach(root: Path, gpu: int, *, socket: int, bridge: str = "", node: int | None = None, switches: int = 1) -> None:
    """Put a GPU behind a bridge of a socket, with one or more PCIe switches in between."""
    bridge = bridge or f"pci0000:{gpu + 1:02x}"
    path = _path(bridge, gpu, switches)
    place(root, address(gpu), f"{path}/{address(gpu)}", socket, socket if node is None else node)


def card(root: Path, name: str, number: int, *, socket: int, bridge: str, beside: int | None = None) -> None:
    """A network card of its own, or behind the same switch as a GPU."""
    own = f"0000:{0x80 + number:02x}:00.0"
    path = _path(bridge, beside, 1) if beside is not None else f"{bridge}/0000:{0x70 + number:02x}:01.0"
    if beside is not None:
        path = path.rpartition("/")[0] + f"/0000:{0x70 + number:02x}:01.0"
    folder = place(root, own, f"{path}/{own}", socket, socket)
    link = root / "sys/class/infiniband" / name
    link.mkdir(parents=True)
    (link / "device").symlink_to(folder)


def place(root: Path, own: str, path: str, socket: int, node: int) -> Path:
    folder = root / "sys/devices" / path
    files = {"numa_node": f"{node}\n", "local_cpulist": f"{SOCKETS[socket]}\n"}
    write(root, {f"/sys/devices/{path}/{name}": text for name, text in files.items()})
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / own).symlink_to(folder)
    return folder


def hgx(root: Path) -> None:
    """Eight GPUs, four at each socket, each with a network card behind the same PCIe switch."""
    for gpu in range(8):
        attach(root, gpu, socket=gpu // 4)
        card(root, f"mlx5_{gpu}", gpu, socket=gpu // 4, bridge=f"pci0000:{gpu + 1:02x}", beside=gpu)


def _path(bridge: str, gpu: int, switches: int) -> str:
    """Host bridge, root port, and for each switch its upstream and downstream port."""
    ports = [bridge, f"{bridge.removeprefix('pci')}:01.0"]
    for level in range(switches):
        ports += [f"0000:{0x20 + gpu + 0x10 * level:02x}:00.0", f"0000:{0x30 + gpu + 0x10 * level:02x}:00.{level}"]
    return "/".join(ports)

"""The NVIDIA GPUs that the PCI bus shows, to be held against those that NVML knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from safelaunch.preflight.machine.root import Root
from safelaunch.preflight.machine.topology import PCI_DEVICES

NVIDIA = "0x10de"
DISPLAY, CONTROLLER_3D = "0x03", "0x0302"  # PCI classes; without a display output: a GPU of a data centre
KEPT_AWAY = ("vfio", "pci-stub")  # kernel drivers that keep a device for a virtual machine
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")

_DEVICE_FILE = re.compile(r"nvidia\d+")


@dataclass(frozen=True)
class OnBus:
    """One display controller: its PCI address, its class as sysfs has it, and its kernel driver, empty without one."""

    address: str
    kind: str
    driver: str

    @property
    def for_the_host(self) -> bool:
        return not self.driver.startswith(KEPT_AWAY)


def on_bus(root: Root) -> tuple[OnBus, ...]:
    """The NVIDIA display controllers that sysfs lists, whatever the driver thinks of them. Those that a GPU makes of
    itself for virtual machines (SR-IOV) are no GPUs of their own."""
    found = []
    for address in sorted(root.names(PCI_DEVICES)):
        folder = f"{PCI_DEVICES}/{address}"
        kind = root.text(f"{folder}/class")
        if root.text(f"{folder}/vendor") == NVIDIA and kind.startswith(DISPLAY) and not root.exists(f"{folder}/physfn"):
            found.append(OnBus(address, kind, _driver(root, folder)))
    return tuple(found)


def fallen(root: Root, known_to_module: Iterable[str], known_to_nvml: Iterable[str]) -> tuple[str, ...]:
    """The addresses of the GPUs that have the driver and that NVML does not know; none where that may be on purpose.

    Args:
        root: of the machine itself. Inside a container the bus shows all GPUs and NVML those of the container.
        known_to_module: addresses of which the kernel module itself has a folder in /proc; none if it shows nothing.
        known_to_nvml: addresses of all GPUs that NVML counts, empty ones where it does not tell.
    """
    module, counted = set(known_to_module), list(known_to_nvml)
    bound = [device.address for device in on_bus(root) if device.driver == "nvidia"]
    there = [address for address in bound if not module or address in module]
    if len(there) <= len(counted) or _fenced(root):
        return ()
    unknown = tuple(address for address in there if address not in counted)
    # Where NVML tells no addresses they cannot be named, but counted.
    return unknown if len(unknown) == len(there) - len(counted) else ("",) * (len(there) - len(counted))


def _driver(root: Root, folder: str) -> str:
    try:
        return root.readlink(f"{folder}/driver").rpartition("/")[2]
    except OSError:
        return ""


def _fenced(root: Root) -> bool:
    """Whether a GPU is kept from this process, as batch systems do (device cgroup) and containers with the pids of the
    host: NVML then leaves it out. The device file is not opened, which could block."""
    if any(root.exists(path) for path in CONTAINER_FILES):
        return True
    files = [name for name in root.names("/dev") if _DEVICE_FILE.fullmatch(name)]
    return not all(os.access(f"{root.prefix}/dev/{name}", os.R_OK | os.W_OK) for name in files)

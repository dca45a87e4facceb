"""What the NVIDIA kernel module says in /proc, which includes GPUs that it has lost."""

from __future__ import annotations

from safelaunch import procfs
from safelaunch.preflight.machine.root import Root

FOLDER = "/proc/driver/nvidia/gpus"


def gpus(root: Root) -> dict[str, str]:
    """PCI address -> UUID, empty where the module does not know it. Raises OSError."""
    return {address: _uuid(root, address) for address in root.names(FOLDER)}


def _uuid(root: Root, address: str) -> str:
    for line in procfs.lines(root.read(f"{FOLDER}/{address}/information")):
        name, _, value = line.partition(":")
        if name.strip() == "GPU UUID" and "?" not in value:  # `GPU-????????-...` before the GPU was initialised
            return value.strip()
    return ""

"""What a process keeps from others: memory, GPUs, ports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.sockets import listeners
from safelaunch.sizes import size


@dataclass
class Holdings:
    """Resident memory in bytes, memory of GPUs in bytes by their index (None where the driver does not say how much),
    and TCP ports on which the process listens."""

    memory: int = 0
    gpus: dict[int, int | None] = field(default_factory=dict)
    ports: set[int] = field(default_factory=set)

    def __str__(self) -> str:
        """`1.2 GiB of memory, 31 GiB of GPU 0, port 29500`."""
        gpus = [f"{f'{size(amount)} of ' if amount else ''}GPU {index}" for index, amount in sorted(self.gpus.items())]
        return ", ".join([f"{size(self.memory)} of memory", *gpus, *(f"port {port}" for port in sorted(self.ports))])


def holdings(host: Host, pids: Iterable[int]) -> dict[int, Holdings]:
    """What each of these processes has, as far as it may be looked at."""
    found = {pid: Holdings(_resident(host, pid)) for pid in pids}
    for gpu in host.nvml().gpus if found else ():
        for entry in gpu.processes:
            holder = host.gpu_process(entry.pid)
            if holder is not None and holder.pid in found:
                found[holder.pid].gpus[gpu.index] = entry.memory
    for pid, port in listeners(host.root, found):
        found[pid].ports.add(port)
    return found


def _resident(host: Host, pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        status = host.root.read(f"/proc/{pid}/status").splitlines()
        return int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) << 10
    return 0

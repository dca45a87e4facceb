"""This node in one run: its name, and what its hardware does."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from safelaunch.model import GpuState, WorkerGroup, WorkerProcess
from safelaunch.run import hardware

if TYPE_CHECKING:
    from safelaunch.preflight.machine.host import Host
    from safelaunch.preflight.machine.nvml import Snapshot

SLOW_GPUS_S = 5.0  # nobody waits for what is said of a slow run


class ThisNode:
    """This node, as far as one run knows it. `host` is what the preflight has seen; None without one."""

    def __init__(self) -> None:
        self.name = socket.gethostname()
        self.host: Host | None = None
        self._since_s = time.clock_gettime(time.CLOCK_BOOTTIME)

    def nvml_known(self) -> Snapshot | None:
        """What NVML has said already."""
        return self.host.nvml_known() if self.host is not None else None

    def hardware(self, workers: Sequence[WorkerProcess], *, waits: bool) -> hardware.Hardware:
        """Begin to read what the hardware of these ranks does; `waits` says whether they wait for one another."""
        return hardware.Hardware(workers, self.host, self._since_s, waits=waits)

    def gpus(self, group: WorkerGroup) -> tuple[GpuState, ...]:
        """What the GPUs of slow ranks do now; empty where they use none. It takes up to `SLOW_GPUS_S` seconds."""
        return hardware.read(group.workers, self.host, since_s=self._since_s, deadline_s=SLOW_GPUS_S)

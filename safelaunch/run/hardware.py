"""The wiring of what the hardware of the ranks does at an incident: their GPUs, the network ports, NCCL's RAS threads.

All of it is read from outside, NVML in a child process, and within a second: evidence must not wait for a driver that
does not answer. A job without GPUs costs a few reads of /proc, and starts no process.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from safelaunch.evidence import devices, nccl_ras
from safelaunch.model import Case, Evidence, GpuState, NetworkPort, RankDevice, WorkerProcess
from safelaunch.run.own_faults import contained

if TYPE_CHECKING:
    from safelaunch.preflight.machine.host import Host

DEADLINE_S = 1.0
MARGIN_S = 0.1  # for what is left to do with an answer, on a busy machine
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of NVIDIA's driver; of WSL, which has no other
NOT_READ = "the GPUs were not read"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read(
    workers: Sequence[WorkerProcess],
    host: Host | None = None,
    *,
    since_s: float | None = None,
    deadline_s: float = DEADLINE_S,
) -> tuple[GpuState, ...]:
    """What the GPUs of these ranks do now; empty where they use none (no process is started then).

    It takes `deadline_s` seconds at most, and never raises.

    Args:
        workers: the ranks of this node, living or not.
        host: this node as the preflight has seen it; None without one.
        since_s: seconds since boot (CLOCK_BOOTTIME) at which the run began: older lines of the kernel log are of
            others. By default the start of the oldest of the ranks.
        deadline_s: for all of it.
    """
    faults: list[str] = []  # whatever is wrong with our own reading, the verdict comes without it
    with contained(faults.append, NOT_READ):
        return _read(workers, host, since_s, time.monotonic() + deadline_s)
    return ()


def _read(
    workers: Sequence[WorkerProcess], host: Host | None, since_s: float | None, until: float
) -> tuple[GpuState, ...]:
    users = _users(workers)
    if not users:
        return ()
    from safelaunch.preflight import gpu_state_now

    machine = _machine(host)
    local_ranks = [
        gpu_state_now.LocalRank(w.rank, w.local_rank, w.pid, _environ(machine, w.pid), device) for w, device in users
    ]
    since = min(w.start / TICKS_PER_S for w in workers) if since_s is None else since_s
    return gpu_state_now.gpus(machine, local_ranks, since, until)


def uses_gpus(workers: Sequence[WorkerProcess]) -> bool:
    """Whether one of these ranks uses a GPU, as it says itself, or as its open files show."""
    return bool(_users(workers))


def _users(workers: Sequence[WorkerProcess]) -> list[tuple[WorkerProcess, RankDevice | None]]:
    """All ranks with what they say of their GPUs, where one of them uses a GPU; else none."""
    said = [(worker, devices.read(worker) if worker.black_box else None) for worker in workers]
    driver = any(os.path.exists(path) for path in DRIVER_FILES)
    if any(_says(device) for _, device in said) or (driver and any(_holds(worker.pid) for worker in workers)):
        return said
    return []


def _says(device: RankDevice | None) -> bool:
    if device is None or not device.count:
        return False
    return (device.chosen is not None and not device.refused) or device.bound is not None or "nccl" in device.backend


def _holds(pid: int) -> bool:
    """Whether a process has a file of the driver open, as each one with a CUDA context has."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_target(f"/proc/{pid}/fd/{name}").startswith(("/dev/nvidia", "/dev/dxg")) for name in names)


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _machine(host: Host | None) -> Host:
    from safelaunch.model import Job
    from safelaunch.preflight.machine.host import Host

    return host if host is not None else Host(Job(nproc=1))


def _environ(machine: Host, pid: int) -> dict[str, str]:
    return machine.process_environ(pid) or dict(machine.environ)


class Hardware:
    """What the hardware of the ranks does, read in the background while other evidence is taken.

    Args:
        workers: the ranks of this node.
        host: this node as the preflight has seen it; None without one.
        since_s: see `read`.
        waits: whether ranks wait for one another: then NCCL is asked as well, and the network ports are looked at.
    """

    def __init__(
        self, workers: Sequence[WorkerProcess], host: Host | None, since_s: float | None = None, *, waits: bool
    ) -> None:
        self._workers = workers
        self._host = host
        self._until = time.monotonic() + DEADLINE_S
        self._gpus: tuple[GpuState, ...] = ()
        self._ports: tuple[NetworkPort, ...] = ()
        self._ras = nccl_ras.Answer()
        self._faults: list[str] = []
        self._threads: list[threading.Thread] = []
        with contained(self._faults.append, NOT_READ):
            if workers and uses_gpus(workers):
                self._start(lambda: self._take_gpus(since_s))
                if waits:
                    self._start(self._take_ras)
                    self._start(self._take_ports)

    def add_to(self, case: Case) -> Case:
        """The case with what was read; waits for it, until a second after the start."""
        for thread in self._threads:
            thread.join(max(0.0, self._until - time.monotonic()))
        return dataclasses.replace(
            case,
            gpus=self._gpus or case.gpus,
            ports_down=self._ports or case.ports_down,
            ras=self._ras.text or case.ras,
        )

    def evidence(self) -> tuple[Evidence, ...]:
        """NCCL's own words, to be kept as they are, and what could not be read."""
        found, parts = self._ras, []
        if found.rank is not None:
            data = {"text": found.text} if found.text else None
            parts.append(Evidence(nccl_ras.SOURCE, found.rank, data, found.missing))
        parts += [Evidence("gpus", self._workers[0].rank, unavailable=fault) for fault in self._faults]
        return tuple(parts)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _take_gpus(self, since_s: float | None) -> None:
        with contained(self._faults.append, NOT_READ):
            self._gpus = _read(self._workers, self._host, since_s, self._until - MARGIN_S)

    def _take_ras(self) -> None:
        self._ras = nccl_ras.ask(self._workers, self._until - MARGIN_S)

    def _take_ports(self) -> None:
        from safelaunch.preflight import gpu_state_now

        machine = _machine(self._host)
        try:
            self._ports = gpu_state_now.ports_down(machine, _environ(machine, self._workers[0].pid))
        except OSError:
            return  # a folder of sysfs that went away while it was read

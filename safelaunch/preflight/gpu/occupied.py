"""Check that nobody else uses the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.preflight.machine.sizes import size
from safelaunch.preflight.machine.visible import VARIABLE


def occupied(host: Host) -> Iterator[Finding]:
    """Another process holds memory of a GPU that the job is to use.

    Most often it is left over from an earlier run. The job then runs out of GPU memory, or runs slowly, much later.

    How it is concluded: NVML's used memory and processes of each GPU that a rank will take. Over 5 % in use is a
    warning, which leaves desktops and idle contexts in peace; from 30 % on it is an error, the share from which dlrover
    calls a GPU unusable. NVML knows processes by the pid of the host: in a container they may not be visible, and then
    only the memory is reported.

    What to do: end the processes, if they are yours (`nvidia-smi` shows them as well); choose other GPUs with
    CUDA_VISIBLE_DEVICES; or turn the check down in a profile (`SL109 = "note"` in [preflight.severity]) where sharing
    GPUs is meant.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if _share(gpu) > host.threshold("gpu_memory_in_use"):
            yield _in_use(host, gpu)

    readings = ("memory_total", "memory_used", "processes")
    yield from each_gpu(host, "SL109", "memory in use", readings, judge, "the GPUs are free")


def _share(gpu: Gpu) -> float:
    return gpu.memory_used / gpu.memory_total if gpu.memory_total else 0.0


def _in_use(host: Host, gpu: Gpu) -> Fault:
    seen = {entry.pid: host.gpu_process(entry.pid) for entry in gpu.processes}
    known = [process for process in seen.values() if process]
    because = []
    for entry in gpu.processes:
        held = f", {size(entry.memory)}" if entry.memory else ""
        process = seen[entry.pid]
        because.append(f"{process}{held}" if process else f"pid {entry.pid} of the host, not visible from here{held}")
    return Fault(
        "error" if _share(gpu) >= host.threshold("gpu_memory_occupied") else "warning",
        f"{size(gpu.memory_used)} of {size(gpu.memory_total)} are in use",
        because=tuple(because) or ("NVML shows no process: it belongs to another container or user",),
        remedy=(f"`{processes.kill_line(known)}`, or " if known else "") + f"choose other GPUs with {VARIABLE}",
    )

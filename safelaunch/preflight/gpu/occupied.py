"""Check that nobody else uses the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu, gpus_in_use
from safelaunch.preflight.machine import processes
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu
from safelaunch.preflight.machine.visible import VARIABLE
from safelaunch.sizes import size

EXCLUSIVE = (1, 3)  # nvmlComputeMode_t: one thread, one process


def occupied(host: Host) -> Iterator[Finding]:
    """Another process holds memory of a GPU that the job is to use.

    Most often it is left over from an earlier run. The job then runs out of GPU memory, or runs slowly, much later.

    How it is concluded: NVML's used memory and compute processes of each GPU that a rank will take. Over 5 % in use is
    a warning, which leaves idle contexts in peace; from 30 % on it is an error, the share from which dlrover calls a
    GPU unusable. A compute process that holds less is a note. On a GPU with an active display
    (nvmlDeviceGetDisplayActive) only what compute processes hold can be an error: the rest may be a desktop's. NVML
    knows processes by the pid of the host: in a container they may not be visible, and then only the memory is
    reported.

    What to do: end the processes, if they are yours (`nvidia-smi` shows them as well); close what a desktop does not
    need, such as browsers; choose other GPUs with CUDA_VISIBLE_DEVICES; or turn the check down in a profile
    (`SL109 = "note"` in [preflight.severity]) where sharing GPUs is meant.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        if _share(gpu) > host.threshold("gpu_memory_in_use"):
            yield _in_use(host, gpu)
        elif gpu.processes and gpu.compute_mode not in EXCLUSIVE:  # there it is what SL113 warns of
            words = f"a process is on it, with little memory ({size(gpu.memory_used)} in use)"
            if len(gpu.processes) > 1:
                words = f"{len(gpu.processes)} processes are on it, with little memory ({size(gpu.memory_used)} in use)"
            yield Fault("note", words, tuple(_names(host, gpu)))

    shown = all(_shows_processes(gpu) for gpu in gpus_in_use(host))
    fine = "the GPUs are free" if shown else "little memory of the GPUs is in use; not all show the processes on them"
    yield from each_gpu(host, "SL109", "memory in use", _readings, judge, fine)


def _readings(gpu: Gpu) -> Sequence[str]:
    """Where processes are not shown, the memory alone tells enough."""
    return ("memory_total", "memory_used", "processes") if _shows_processes(gpu) else ("memory_total", "memory_used")


def _shows_processes(gpu: Gpu) -> bool:
    why = gpu.why_unread("processes")
    return not (why and why.unsupported)


def _share(gpu: Gpu) -> float:
    return gpu.memory_used / gpu.memory_total if gpu.memory_total else 0.0


def _held(gpu: Gpu) -> float:
    """The share of its memory that a job has to fear: a desktop's part is small, and there to stay."""
    if not gpu.display:
        return _share(gpu)
    return sum(entry.memory or 0 for entry in gpu.processes) / gpu.memory_total if gpu.memory_total else 0.0


def _in_use(host: Host, gpu: Gpu) -> Fault:
    known = [process for entry in gpu.processes if (process := host.gpu_process(entry.pid))]
    owner = "a desktop, or another container or user" if gpu.display else "another container or user"
    ways = [f"`{processes.kill_line(known)}`"] if known else ["close programs of the desktop"] if gpu.display else []
    return Fault(
        "error" if _held(gpu) >= host.threshold("gpu_memory_occupied") else "warning",
        f"{size(gpu.memory_used)} of {size(gpu.memory_total)} are in use",
        because=tuple(_names(host, gpu)) or (f"NVML shows no compute process: it belongs to {owner}",),
        remedy=", or ".join([*ways, f"choose other GPUs with {VARIABLE}"]),
    )


def _names(host: Host, gpu: Gpu) -> Iterator[str]:
    """Who computes on a GPU, as far as it can be seen from here."""
    for entry in gpu.processes:
        held = f", {size(entry.memory)}" if entry.memory else ""
        process = host.gpu_process(entry.pid)
        yield f"{process}{held}" if process else f"pid {entry.pid} of the host, not visible from here{held}"

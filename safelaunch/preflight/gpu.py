"""Checks of the GPUs, from one snapshot of NVML: does the driver answer, are there enough, are they free."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight import nvml, processes
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.host import NVML_DEADLINE_S, Host
from safelaunch.preflight.nvml import Failure, Gpu, Snapshot
from safelaunch.preflight.sizes import plural, size
from safelaunch.preflight.visible import VARIABLE, visible_gpus

NO_GPU = "no NVIDIA driver on this machine"
AMD_DRIVER = "/dev/kfd"

# What to do about an error that NVML returns; sources: nvml.h and the actions of leptonai/gpud for the same errors.
REMEDIES = {
    nvml.DRIVER_NOT_LOADED: "load the kernel driver (modprobe nvidia), or run on a node with GPUs",
    nvml.LIBRARY_NOT_FOUND: "install the driver; in a container, start it with --gpus all (nvidia-container-toolkit)",
    nvml.LIB_RM_VERSION_MISMATCH: "the driver was upgraded under a running kernel: reload the nvidia module, or reboot",
    nvml.GPU_IS_LOST: "the GPU fell off the bus: reboot the node, and have it serviced if it happens again",
    nvml.RESET_REQUIRED: "reset it (nvidia-smi --gpu-reset -i INDEX), or reboot the node",
}


def needs_gpu(host: Host) -> bool:
    return host.job.uses_gpu or host.job.nproc_asked == "gpu"


# ----------------------------------------------------------------------------------------------- driver


def driver(host: Host) -> Iterator[Finding]:
    """The NVIDIA driver does not answer, answers with an error, or has lost a GPU.

    Every CUDA program of the node would fail or hang in the same place. A rank that hangs there is in an
    uninterruptible kernel call: not even SIGKILL ends it.

    How it is concluded: a child process asks NVML about each GPU and is given 10 s; healthy drivers take 0.1 s, some
    seconds with persistence mode off, and sick ones have been seen to block for 45 s and for good (NVIDIA/DCGM issue
    313, NVIDIA/NVSentinel issue 1576). The call that did not return is named. Errors of NVML are reported with its own
    words. In a job that does not use GPUs all of this is a warning at most; a machine without the driver is fine then.

    What to do: the message says it for the known errors. "Driver/library version mismatch" wants the kernel module
    reloaded or a reboot, a lost GPU or a driver that hangs wants a reboot, "reset required" a reset of that GPU.
    """
    snapshot = host.nvml()
    needed = needs_gpu(host)
    if snapshot.absent and not needed:
        yield ok("SL108", NO_GPU)
    elif snapshot.absent and host.root.exists(AMD_DRIVER):
        yield unchecked(
            "SL108", "the GPUs were not checked", "this machine has AMD's driver, which is not looked at yet"
        )
    elif snapshot.unknown:
        yield unchecked("SL108", "the GPU driver could not be asked", snapshot.unknown)
    elif snapshot.stuck_in or snapshot.failure:
        yield no_answer(snapshot, needed=needed)
    else:
        broken = [(gpu, gpu.failure) for gpu in snapshot.gpus if gpu.failure]
        used = set(_used(host, snapshot))
        for gpu, failure in broken:
            yield _broken_gpu(gpu, failure, severe=needed and gpu.index in used)
        if not broken:
            yield ok("SL108", f"NVIDIA driver {snapshot.driver}, {plural(len(snapshot.gpus), 'GPU')}")


def no_answer(snapshot: Snapshot, *, needed: bool) -> Finding:
    """What is wrong with a driver that did not answer, or not in time."""
    because: tuple[str, ...]
    if snapshot.failure:
        summary = f"the NVIDIA driver cannot be used: {snapshot.failure.text}"
        because = (f"{snapshot.failure.call} returned error {snapshot.failure.code}",)
        remedy = REMEDIES.get(snapshot.failure.code, "see whether nvidia-smi works, and `dmesg | grep NVRM`")
    else:
        summary = f"the NVIDIA driver did not answer within {NVML_DEADLINE_S:g} s"
        because = (f"the probe is stuck in {snapshot.stuck_in}",)
        remedy = "reboot the node; `dmesg | grep NVRM` may say why"
    if needed:
        because += ("the job needs GPUs",)
    return Finding(
        code="SL108", severity="error" if needed else "warning", summary=summary, because=because, remedy=remedy
    )


def _broken_gpu(gpu: Gpu, failure: Failure, *, severe: bool) -> Finding:
    return Finding(
        code="SL108",
        severity="error" if severe else "warning",
        summary=f"GPU {gpu.index} does not answer: {failure.text}",
        because=(f"{failure.call} returned error {failure.code}",),
        remedy=REMEDIES.get(failure.code, "see `dmesg | grep NVRM`"),
    )


# ------------------------------------------------------------------------------------------------ count


def count(host: Host) -> Iterator[Finding]:
    """Fewer GPUs are visible on this node than ranks are to run on it.

    Each rank takes the GPU of its local rank, so the last ones would die of "invalid device ordinal".

    How it is concluded: NVML counts the GPUs of the driver, and CUDA_VISIBLE_DEVICES is applied to them by torch's
    rules: the list ends at the first entry that names no GPU (`0,9,1` of 8 is one GPU), an entry twice empties it
    (`2,5,2` is none), an empty text hides all, UUIDs may be shortened as long as they are unique. Only jobs that use
    GPUs are checked. MIG instances cannot be counted in this way and are left unchecked. It is a warning where the
    machine never had so many GPUs: then the ranks may be meant for the CPU, or to share a GPU.

    What to do: correct --nproc-per-node or CUDA_VISIBLE_DEVICES, or the number of GPUs that the job asks its scheduler
    for. Where the PCI bus has more GPUs than the driver, one fell off the bus: reboot the node.
    """
    if not needs_gpu(host):
        yield ok("SL107", "the job does not use GPUs")
        return
    snapshot = host.nvml()
    if not snapshot.answers:
        yield unchecked("SL107", "the GPUs could not be counted", "the driver does not answer (see SL108)")
        return
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    ranks = host.job.nproc
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        yield unchecked("SL107", "the GPUs could not be counted", "MIG instances are in use, which NVML does not count")
        return
    if visible and len(visible) >= ranks:
        yield ok("SL107", f"{plural(len(visible), 'GPU')} visible for {plural(ranks, 'rank')}")
        return
    setting = host.environ.get(VARIABLE)
    yield Finding(
        code="SL107",
        severity="error" if ranks <= max(len(snapshot.gpus), _gpus_on_bus(host)) else "warning",
        summary=f"{plural(ranks, 'rank')} asked for, {plural(len(visible), 'GPU')} visible",
        because=tuple(_why_fewer(host, snapshot, setting)),
        remedy=" or ".join(_ways_out(len(visible), setting)),
    )


def _ways_out(visible: int, setting: str | None) -> Iterator[str]:
    if visible:
        yield f"start fewer ranks (--nproc-per-node {visible})"
    if setting is not None:
        yield f"correct {VARIABLE}"
    yield "run on a node with more GPUs"


def _why_fewer(host: Host, snapshot: Snapshot, setting: str | None) -> Iterator[str]:
    yield f"the driver has {plural(len(snapshot.gpus), 'GPU')}"
    if setting is not None:
        yield f"{VARIABLE}={setting!r} (the list ends at an entry that names no GPU; one twice empties it)"
    on_bus = _gpus_on_bus(host)
    if on_bus > len(snapshot.gpus):
        yield f"{on_bus} NVIDIA GPUs are on the PCI bus: one fell off it, or this container was given fewer"


def _gpus_on_bus(host: Host) -> int:
    """NVIDIA display controllers (PCI class 0x03) that sysfs lists, whatever the driver thinks of them."""
    devices = "/sys/bus/pci/devices"
    found = 0
    for name in host.root.names(devices):
        try:
            vendor = host.root.read(f"{devices}/{name}/vendor").strip()
            found += vendor == "0x10de" and host.root.read(f"{devices}/{name}/class").startswith("0x03")
        except OSError:
            continue
    return found


# -------------------------------------------------------------------------------------------- leftovers

# The share of a GPU's memory that a desktop or an idle driver may hold without being in the way, and the share from
# which dlrover calls a GPU unusable (dlrover/trainer/torch/node_check).
IN_USE = 0.05
OCCUPIED = 0.30


def leftovers(host: Host) -> Iterator[Finding]:
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
    if not needs_gpu(host):
        yield ok("SL109", "the job does not use GPUs")
        return
    snapshot = host.nvml()
    if not snapshot.answers:
        yield unchecked("SL109", "leftover processes on the GPUs were not looked for", "the driver does not answer")
        return
    busy = [gpu for gpu in map(snapshot.gpus.__getitem__, _used(host, snapshot)) if _share(gpu) > IN_USE]
    for gpu in busy:
        yield _in_use(host, gpu)
    if not busy:
        yield ok("SL109", "the GPUs are free")


def _used(host: Host, snapshot: Snapshot) -> tuple[int, ...]:
    """The GPUs that ranks will take. Where they cannot be told, all count."""
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    return tuple(range(len(snapshot.gpus))) if visible is None else visible[: host.job.nproc]


def _share(gpu: Gpu) -> float:
    return gpu.memory_used / gpu.memory_total if gpu.memory_total else 0.0


def _in_use(host: Host, gpu: Gpu) -> Finding:
    seen = {entry.pid: host.gpu_process(entry.pid) for entry in gpu.processes}
    known = [process for process in seen.values() if process]
    because = []
    for entry in gpu.processes:
        held = f", {size(entry.memory)}" if entry.memory else ""
        process = seen[entry.pid]
        because.append(f"{process}{held}" if process else f"pid {entry.pid} of the host, not visible from here{held}")
    return Finding(
        code="SL109",
        severity="error" if _share(gpu) >= OCCUPIED else "warning",
        summary=f"{size(gpu.memory_used)} of {size(gpu.memory_total)} of GPU {gpu.index} are in use",
        because=tuple(because) or ("NVML shows no process: it belongs to another container or user",),
        remedy=(f"`{processes.kill_line(known)}`, or " if known else "") + f"choose other GPUs with {VARIABLE}",
    )

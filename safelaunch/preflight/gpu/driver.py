"""Check that the driver answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.gpu.look import full_names, needs_gpu, numbers, used_gpus
from safelaunch.preflight.machine import nvml
from safelaunch.preflight.machine.host import FIRST_PID_NAMESPACE, Host
from safelaunch.preflight.machine.nvml import Failure, Gpu, Snapshot
from safelaunch.preflight.machine.nvml_bus import CONTROLLER_3D, OnBus, on_bus
from safelaunch.sizes import plural

NO_GPU = "no NVIDIA driver on this machine"
AMD_DRIVER = "/dev/kfd"

# What to do about an error that NVML returns; sources: nvml.h and the actions of leptonai/gpud for the same errors.
REMEDIES = {
    nvml.DRIVER_NOT_LOADED: "load the kernel driver (modprobe nvidia), or run on a node with GPUs",
    nvml.LIBRARY_NOT_FOUND: "install the driver; in a container, start it with --gpus all (nvidia-container-toolkit)",
    nvml.LIB_RM_VERSION_MISMATCH: "the driver was upgraded under a running kernel: reload the nvidia module, or reboot",
    nvml.NO_PERMISSION: "have an admin look at the rights of /dev/nvidiaINDEX, or, in a container or batch job, ask "
    "for this GPU (device cgroup)",
    nvml.GPU_IS_LOST: "the GPU fell off the bus: reboot the node, and have it serviced if it happens again",
    nvml.RESET_REQUIRED: "reset it (nvidia-smi --gpu-reset -i INDEX), or reboot the node",
}


def driver(host: Host) -> Iterator[Finding]:
    """The NVIDIA driver does not answer, answers with an error, or has lost a GPU.

    Every CUDA program of the node would fail or hang in the same place. A rank that hangs there is in an
    uninterruptible kernel call: not even SIGKILL ends it.

    How it is concluded: a child process asks NVML about each GPU and is given 10 s (`nvml_deadline` in
    [preflight.thresholds]); healthy drivers take 0.1 s, some seconds with persistence mode off. Sick ones have been
    seen to block for 45 s and for good (NVIDIA/DCGM issue 313, NVIDIA/NVSentinel issue 1576). The call that did not
    return is named, with its GPU. Errors of NVML are reported with its own words; "GPU is lost" and "reset required" to
    any call about a GPU are its end. In a job that does not use GPUs all of this is a warning at most. A machine
    without the driver is fine then. It is a warning where it is no container, and its PCI bus has NVIDIA 3D controllers
    (class 0x0302, GPUs of data centres) that no virtual machine has.

    What to do: the message says it for the known errors. "Driver/library version mismatch" wants the kernel module
    reloaded or a reboot, a lost GPU or a driver that hangs wants a reboot, "reset required" a reset of that GPU.
    """
    snapshot = host.nvml()
    needed = needs_gpu(host)
    idle = _without_a_driver(host) if snapshot.absent else ()
    if snapshot.absent and not needed and idle:
        yield _no_driver(snapshot, idle)
    elif snapshot.absent and not needed:
        yield skipped("SL108", NO_GPU)
    elif snapshot.absent and host.root.exists(AMD_DRIVER):
        yield unchecked(
            "SL108", "the GPUs were not checked", "this machine has AMD's driver, which is not looked at yet"
        )
    elif snapshot.unknown:
        yield unchecked("SL108", "the GPU driver could not be asked", snapshot.unknown)
    elif snapshot.stuck_in or snapshot.failure:
        yield no_answer(snapshot, needed=needed)
    broken = [(gpu, gpu.failure) for gpu in snapshot.gpus if gpu.failure]
    used = set(used_gpus(host, snapshot))
    for gpu, failure in broken:
        yield _broken_gpu(_with_name(host, gpu, snapshot), failure, severe=needed and gpu.index in used)
    if snapshot.answers and not broken:
        version = snapshot.driver or "of a version that it does not tell"
        yield ok("SL108", f"NVIDIA driver {version}, {plural(len(snapshot.gpus), 'GPU')}")


def no_answer(snapshot: Snapshot, *, needed: bool) -> Finding:
    """What is wrong with a driver that did not answer, or not in time."""
    because: tuple[str, ...]
    where = ""
    if snapshot.failure:
        summary = f"the NVIDIA driver cannot be used: {snapshot.failure.text}"
        because = (f"{snapshot.failure.call} returned error {snapshot.failure.code}",)
        remedy = REMEDIES.get(snapshot.failure.code, "see whether nvidia-smi works, and `dmesg | grep NVRM`")
    else:
        who = "the NVIDIA driver"
        if snapshot.stuck_gpus:
            stuck = [(*snapshot.gpus[index : index + 1], Gpu(index))[0] for index in snapshot.stuck_gpus]
            who, where = numbers(stuck), full_names(stuck)
        summary = f"{who} did not answer within {snapshot.waited_s:g} s"
        because = (f"the probe is stuck in {snapshot.stuck_in}",)
        remedy = "reboot the node; `dmesg | grep NVRM` may say why"
    if needed:
        because += ("the job needs GPUs",)
    return Finding(
        code="SL108",
        severity="error" if needed else "warning",
        summary=summary,
        because=because,
        remedy=remedy,
        where=where,
    )


def _without_a_driver(host: Host) -> tuple[OnBus, ...]:
    """The GPUs that wait for the driver on the PCI bus; inside a container they are not ours to use."""
    if host.pid_namespace() != FIRST_PID_NAMESPACE:
        return ()
    return tuple(gpu for gpu in on_bus(host.root) if gpu.kind.startswith(CONTROLLER_3D) and gpu.for_the_host)


def _no_driver(snapshot: Snapshot, idle: Sequence[OnBus]) -> Finding:
    failure = snapshot.failure
    are = "GPU is" if len(idle) == 1 else "GPUs are"
    return Finding(
        code="SL108",
        severity="warning",
        summary=f"{len(idle)} NVIDIA {are} on the PCI bus and no driver answers",
        because=(f"{failure.call}: {failure.text}",) if failure else (),
        remedy="have an admin load the driver (modprobe nvidia) or install it, if the GPUs are to be used",
        where="; ".join(f"GPU {gpu.address}" for gpu in idle),
    )


def _broken_gpu(gpu: Gpu, failure: Failure, *, severe: bool) -> Finding:
    matter = "may not be used" if failure.code == nvml.NO_PERMISSION else "does not answer"
    return Finding(
        code="SL108",
        severity="error" if severe else "warning",
        summary=f"GPU {gpu.index} {matter}: {failure.text}",
        because=(f"{failure.call} returned error {failure.code}",),
        remedy=REMEDIES.get(failure.code, "see `dmesg | grep NVRM`").replace("INDEX", str(gpu.index)),
        where=str(gpu),
    )


def _with_name(host: Host, gpu: Gpu, snapshot: Snapshot) -> Gpu:
    """A GPU that NVML cannot even name, by what the kernel module says of the one that is missing."""
    if gpu.uuid and gpu.address:
        return gpu
    known = {other.address for other in snapshot.gpus}
    missing = {address: uuid for address, uuid in host.driver_gpus().items() if address not in known}
    nameless = [other.index for other in snapshot.gpus if not other.address]
    if len(missing) != len(nameless):
        return gpu
    address, uuid = sorted(missing.items())[nameless.index(gpu.index)]  # NVML counts GPUs in the order of the PCI bus
    return dataclasses.replace(gpu, address=address, uuid=gpu.uuid or uuid)

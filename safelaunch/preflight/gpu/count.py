"""Check that there is a GPU for each rank."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, unchecked
from safelaunch.preflight.gpu.look import NOT_USED, needs_gpu
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.machine.sizes import plural
from safelaunch.preflight.machine.visible import VARIABLE, visible_gpus


def count(host: Host) -> Iterator[Finding]:
    """Fewer GPUs are visible on this node than ranks are to run on it.

    Each rank takes the GPU of its local rank, so the last ones would die of "invalid device ordinal".

    How it is concluded: NVML counts the GPUs of the driver, and CUDA_VISIBLE_DEVICES is applied to them by torch's
    rules: the list ends at the first entry that names no GPU (`0,9,1` of 8 is one GPU), an entry twice empties it
    (`2,5,2` is none), an empty text hides all, UUIDs may be shortened as long as they are unique. Only jobs that use
    GPUs are checked. MIG instances are left to SL114. It is a warning where the machine never had so many GPUs and
    the ranks are a whole multiple of them: then they may be meant to share a GPU, or for the CPU.

    What to do: correct --nproc-per-node or CUDA_VISIBLE_DEVICES, or the number of GPUs that the job asks its scheduler
    for. Where the PCI bus has more GPUs than the driver, one fell off the bus: reboot the node.
    """
    if not needs_gpu(host):
        yield ok("SL107", NOT_USED)
        return
    snapshot = host.nvml()
    if not snapshot.answers:
        yield unchecked("SL107", "the GPUs could not be counted", "the driver does not answer (see SL108)")
        return
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    ranks = host.job.nproc
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        yield ok("SL107", "MIG instances are in use, of which a process sees one (see SL114)")
        return
    if visible and len(visible) >= ranks:
        yield ok("SL107", f"{plural(len(visible), 'GPU')} visible for {plural(ranks, 'rank')}")
        return
    setting = host.environ.get(VARIABLE)
    had_enough = ranks <= max(len(snapshot.gpus), _gpus_on_bus(host))
    shared = bool(visible) and ranks % len(visible) == 0
    yield Finding(
        code="SL107",
        severity="error" if had_enough or not shared else "warning",
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

"""Check that there is a GPU for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.gpu.look import NOT_USED, needs_gpu
from safelaunch.preflight.machine.host import FIRST_PID_NAMESPACE, Host
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.machine.nvml_bus import fallen, on_bus
from safelaunch.preflight.machine.visible import VARIABLE, visible_gpus
from safelaunch.sizes import plural

REBOOT = "have an admin reboot the node, and the GPU serviced if it happens again (`dmesg | grep NVRM` says more)"


def count(host: Host) -> Iterator[Finding]:
    """Fewer GPUs are visible on this node than ranks are to run on it, or than the node has.

    Each rank takes the GPU of its local rank, so the last ones would die of "invalid device ordinal". Where a GPU has
    fallen off the bus, the numbers of the others have moved, and the node wants a reboot.

    How it is concluded: NVML counts the GPUs of the driver, and CUDA_VISIBLE_DEVICES is applied to them by torch's
    rules. The list ends at the first entry that names no GPU (`0,9,1` of 8 is one GPU). An entry twice empties it
    (`2,5,2` is none), and an empty text hides all. UUIDs may be shortened as long as they are unique. MIG instances are
    left to SL114. It is a warning where the machine never had so many GPUs and the ranks are a whole multiple of them:
    then they may be meant to share a GPU, or for the CPU. Where NVML does not count an NVIDIA display controller that
    sysfs shows bound to the kernel driver nvidia, it has fallen off the bus. That holds outside containers, and where
    all GPUs may be used: an error for jobs that use GPUs, a warning for others, of which nothing else is checked.

    What to do: correct --nproc-per-node or CUDA_VISIBLE_DEVICES, or the number of GPUs that the job asks its scheduler
    for. Where the PCI bus has more GPUs than the driver, one fell off the bus: reboot the node.
    """
    snapshot = host.nvml()
    lost = _fallen(host, snapshot)
    if not needs_gpu(host):
        yield _lost(host, lost) if lost else skipped("SL107", NOT_USED)
        return
    if not snapshot.answers:
        yield unchecked("SL107", "the GPUs could not be counted", "the driver does not answer (see SL108)")
        return
    visible = visible_gpus(host.environ, [gpu.uuid for gpu in snapshot.gpus])
    ranks = host.job.nproc
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        why = "MIG instances are in use, of which a process sees one (see SL114)"
        yield _lost(host, lost) if lost else skipped("SL107", why)
        return
    if visible and len(visible) >= ranks:
        fine = f"{plural(len(visible), 'GPU')} visible for {plural(ranks, 'rank')}"
        yield _lost(host, lost) if lost else ok("SL107", fine)
        return
    setting = host.environ.get(VARIABLE)
    had_enough = bool(lost) or ranks <= max(len(snapshot.gpus), len(on_bus(host.root)))
    shared = bool(visible) and ranks % len(visible) == 0
    yield Finding(
        code="SL107",
        severity="error" if had_enough or not shared else "warning",
        summary=f"{plural(ranks, 'rank')} asked for, {plural(len(visible), 'GPU')} visible",
        because=tuple(_why_fewer(host, snapshot, setting, lost)),
        remedy=" or ".join(_ways_out(len(visible), setting, lost)),
        where=_named(lost),
    )


def _lost(host: Host, lost: Sequence[str]) -> Finding:
    """GPUs have fallen off the bus, though there may be enough without them."""
    left = len(host.nvml().gpus)
    return Finding(
        code="SL107",
        severity="error" if needs_gpu(host) else "warning",
        summary=f"{plural(len(lost), 'GPU')} fell off the bus: {left + len(lost)} have the driver, {left} answer",
        because=(f"sysfs has {left + len(lost)} GPUs that are bound to the kernel driver nvidia, NVML has {left}",),
        remedy=REBOOT,
        where=_named(lost),
    )


def _fallen(host: Host, snapshot: Snapshot) -> tuple[str, ...]:
    """The addresses of the GPUs that fell off the bus; inside a container there is no telling."""
    if not snapshot.answers or host.pid_namespace() != FIRST_PID_NAMESPACE:
        return ()
    return fallen(host.root, host.driver_gpus(), [gpu.address for gpu in snapshot.gpus])


def _named(lost: Sequence[str]) -> str:
    return "; ".join(f"GPU {address}" for address in lost if address)


def _ways_out(visible: int, setting: str | None, lost: Sequence[str]) -> Iterator[str]:
    if visible:
        yield f"start fewer ranks (--nproc-per-node {visible})"
    if setting is not None:
        yield f"correct {VARIABLE}"
    yield REBOOT if lost else "run on a node with more GPUs"


def _why_fewer(host: Host, snapshot: Snapshot, setting: str | None, lost: Sequence[str]) -> Iterator[str]:
    yield f"the driver has {plural(len(snapshot.gpus), 'GPU')}"
    if setting is not None:
        yield f"{VARIABLE}={setting!r} (the list ends at an entry that names no GPU; one twice empties it)"
    there = len(on_bus(host.root))
    if lost:
        bound = len(snapshot.gpus) + len(lost)
        yield f"{bound} GPUs are bound to the kernel driver nvidia: {len(lost)} fell off the bus"
    elif there > len(snapshot.gpus):
        yield f"{there} NVIDIA GPUs are on the PCI bus: one fell off it, or this job was given fewer"

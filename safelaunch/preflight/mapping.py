"""Which GPU belongs to which rank, when the worker group has started; from what the preflight has seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.model import Device, Place
from safelaunch.preflight.gpu.look import spans
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.machine.visible import VARIABLE, visible_gpus

ORDER = "CUDA_DEVICE_ORDER"
NOT_ASKED = "NVML was not asked"


@dataclass(frozen=True)
class Started:
    """A rank as it was started: its pid, the environment of its process, and the CPUs that it may use (None: that
    cannot be read)."""

    rank: int
    local_rank: int
    pid: int
    environ: Mapping[str, str]
    cpus: frozenset[int] | None = None


def places(
    host: str, ranks: Iterable[Started], snapshot: Snapshot | None, devices: Mapping[int, Device], *, uses_gpu: bool
) -> tuple[Place, ...]:
    """The mapping of one worker group.

    Args:
        host: this node.
        ranks: of this node.
        snapshot: what NVML has said; None where it was not asked.
        devices: what sysfs says of each GPU, by index.
        uses_gpu: whether ranks would use GPUs; without, the mapping is one of CPUs alone.
    """
    return tuple(_place(host, rank, snapshot, devices, uses_gpu) for rank in ranks)


def _place(host: str, rank: Started, snapshot: Snapshot | None, devices: Mapping[int, Device], uses_gpu: bool) -> Place:
    cpus = "" if rank.cpus is None else spans(rank.cpus).replace(" ", "")
    place = Place(rank.rank, host, rank.local_rank, rank.pid, cpus=cpus)
    if not uses_gpu:
        return place
    index, why = _index(rank, snapshot)
    if index is None:
        return _with(place, unknown=why)
    gpu = next((gpu for gpu in snapshot.gpus if gpu.index == index), None) if snapshot else None
    if gpu is None:
        return _with(place, gpu_index=index, unknown=why or NOT_ASKED)
    device = devices.get(index)
    node = device.numa_node if device else None
    return _with(place, gpu_index=index, uuid=gpu.uuid, address=gpu.address, numa_node=node)


def _index(rank: Started, snapshot: Snapshot | None) -> tuple[int | None, str]:
    """The driver's index of the GPU that LOCAL_RANK points to; or None, and why."""
    local = int(rank.environ.get("LOCAL_RANK", rank.local_rank))  # --virtual-local-rank gives each rank 0
    setting = rank.environ.get(VARIABLE)
    if snapshot is None or not snapshot.gpus:
        why = NOT_ASKED if snapshot is None else "the driver does not answer"
        entries = [entry.strip() for entry in setting.split(",")] if setting is not None else []
        if setting is None:
            return local, why
        if local < len(entries) and entries[local].isdecimal():
            return int(entries[local]), why
        return None, f"{VARIABLE}={setting}, and {why}"
    visible = visible_gpus(rank.environ, [gpu.uuid for gpu in snapshot.gpus])
    if visible is None or any(snapshot.gpus[index].mig for index in visible):
        return None, "MIG instances"
    if local >= len(visible):
        return None, f"no GPU: {len(visible)} visible"
    if _order_is_open(rank.environ, snapshot.gpus):
        return None, f"GPUs of different kinds, and {ORDER} is not PCI_BUS_ID"
    return visible[local], ""


def _order_is_open(environ: Mapping[str, str], gpus: Sequence[object]) -> bool:
    """CUDA puts the fastest GPU first, NVML goes by PCI address: only GPUs that are alike have the same numbers."""
    by_number = not environ.get(VARIABLE, "").startswith("GPU-")
    kinds = {getattr(gpu, "name", "") for gpu in gpus}
    return by_number and len(kinds) > 1 and environ.get(ORDER) != "PCI_BUS_ID"


def _with(place: Place, **changes: object) -> Place:
    return dataclasses.replace(place, **changes)  # type: ignore[arg-type]

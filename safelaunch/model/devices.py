"""Which GPU belongs to which rank and how far it has come: what ranks say themselves, and what the launch knows."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model.diagnostic import Location


@dataclass(frozen=True)
class Changed:
    """CUDA_VISIBLE_DEVICES as the script has set it, and where. `late` says that CUDA had been initialised before."""

    value: str
    late: bool = False
    location: Location | None = None


@dataclass(frozen=True)
class RankDevice:
    """What one rank says of its GPUs; None is what it has not come to yet.

    `started_with` is CUDA_VISIBLE_DEVICES at the start of the process (None: not set), `visible` what it is now.
    `chosen` is the number that the script called `set_device` with last (None again where it goes from GPU to GPU all
    the time); `refused` says that the call failed. `count` is how many GPUs torch sees, `device` its current one at
    `init_process_group`, `bound` the `device_id` of the process group. `backend` is empty before `init_process_group`.
    """

    rank: int
    local_rank: int
    local_size: int = 1
    started_with: str | None = None
    visible: str | None = None
    changed: Changed | None = None
    chosen: int | None = None
    chosen_at: Location | None = None
    refused: bool = False
    count: int | None = None
    device: int | None = None
    bound: int | None = None
    backend: str = ""


@dataclass(frozen=True)
class Place:
    """Where one rank runs, as its worker group was started.

    `gpu_index` counts as the driver does (nvidia-smi); it is what LOCAL_RANK points to, which the script may change.
    It is None where the rank has no GPU or it cannot be told: `unknown` says why. `cpus` is a list as the kernel writes
    it (`0-3,8`).
    """

    rank: int
    host: str
    local_rank: int
    pid: int
    gpu_index: int | None = None
    uuid: str = ""
    address: str = ""
    numa_node: int | None = None
    cpus: str = ""
    unknown: str = ""


def gpu_of(rank: RankDevice) -> str | None:
    """The GPU that a rank uses, as CUDA_VISIBLE_DEVICES would name it; None where it cannot be told."""
    chosen = None if rank.refused else rank.chosen
    ordinal = rank.bound if rank.bound is not None else chosen
    if ordinal is None and rank.count == 1:
        ordinal = 0
    visible = _in_force(rank)
    if ordinal is None or visible is None:
        return None if ordinal is None else str(ordinal)
    return visible[ordinal] if ordinal < len(visible) else None


def listed(text: str) -> list[str]:
    """CUDA_VISIBLE_DEVICES as CUDA reads it, up to the first entry that names nothing: `0,-1,1` is `0`, and empty is
    none."""
    entries: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            break
        entries.append(entry)
    return entries


def _in_force(rank: RankDevice) -> list[str] | None:
    """CUDA_VISIBLE_DEVICES as CUDA has read it, or None where it was not set."""
    text = rank.started_with if rank.changed is not None and rank.changed.late else rank.visible
    return None if text is None else listed(text)


@dataclass(frozen=True)
class StreamMark:
    """A place in what a rank's host has enqueued for its GPU at `t` (CLOCK_MONOTONIC): ahead of a `call` of Python's,
    or behind a forward pass of DDP's, which has no location."""

    call: str
    t: float
    location: Location | None = None


@dataclass(frozen=True)
class StreamProgress:
    """How far a rank's GPU has come: the latest mark that it has reached, and the first that it has not."""

    reached: StreamMark | None = None
    outstanding: StreamMark | None = None

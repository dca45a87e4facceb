"""Which GPU belongs to which rank: what ranks say of it themselves, and what the launch knows."""

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

"""The GPUs of a node at an incident: what they do, who uses them, what the driver says of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """A process with memory on a GPU. `rank` is None where it is no rank of this job, or where that cannot be told (a
    container sees other numbers than the driver); `memory_bytes` is None where the driver does not say."""

    pid: int
    rank: int | None = None
    memory_bytes: int | None = None
    command: str = ""


@dataclass(frozen=True)
class GpuState:
    """One GPU. `index` counts as the driver does (nvidia-smi); `ranks` are those that use it, as they or the driver
    say.

    `busy_percent` is the share of the last sampling period in which a kernel ran (a rank that waits in NCCL counts as
    busy), `held_back` why the hardware holds its clocks back, `xids` what the driver logged of it since the run began,
    `links_down` the NVLinks that are down. Memory is in bytes, the temperature in degrees Celsius. A reading that is
    not there is None; `missing` says why all are.
    """

    index: int
    uuid: str = ""
    address: str = ""
    name: str = ""
    ranks: tuple[int, ...] = ()
    memory_total: int | None = None
    memory_used: int | None = None
    busy_percent: int | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    held_back: tuple[str, ...] = ()
    temperature: int | None = None
    tenants: tuple[Tenant, ...] = ()
    xids: tuple[str, ...] = ()
    links_down: int | None = None
    missing: str = ""

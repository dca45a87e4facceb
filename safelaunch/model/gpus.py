"""The GPUs and network ports of a node at an incident: what they do, who uses them, what the driver says of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """A process with memory on a GPU. `rank` is None where it is no rank of this job, or where that cannot be told (a
    container sees other numbers than the driver): `command` is empty where the process cannot be seen from here.
    `memory_bytes` is None where the driver does not say."""

    pid: int
    rank: int | None = None
    memory_bytes: int | None = None
    command: str = ""


@dataclass(frozen=True)
class GpuState:
    """One GPU. `index` counts as the driver does (nvidia-smi); `ranks` are those that use it, as they or the driver
    say.

    `busy_percent` is the share of the last sampling period in which a kernel ran (a rank that waits in NCCL counts as
    busy), `held_back` why the hardware holds its clocks back, `limited_by` what else keeps them down, as it does
    now and then with any GPU (power cap, settings), `xids` what the driver logged of it since the run began
    (as dmesg shows it, with seconds since boot), `links_down` the NVLinks that are down, of `links`; `ecc_errors` are
    uncorrectable memory errors since the driver was loaded. `lost` says that the driver has lost the GPU, or wants it
    to be reset. Memory is in bytes, the temperature in degrees Celsius. A reading that is not there is None; `missing`
    says why readings are not there, `log_unread` why there are no `xids`. `node` is that of its ranks' facts. `host`
    is named in a case of several nodes, and the times of the case are `ahead_s` seconds ahead of those of `xids` then.
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
    links: int | None = None
    ecc_errors: int | None = None
    lost: bool = False
    log_unread: str = ""
    limited_by: tuple[str, ...] = ()
    node: int = 0
    host: str = ""
    ahead_s: float = 0.0


@dataclass(frozen=True)
class NetworkPort:
    """A port of an InfiniBand or RoCE device that is down although it should be up: its like are, on this node.

    `name` is as NCCL_IB_HCA has it (`mlx5_2:1`), `state` and `physical` are the kernel's words. `host` is named in a
    case of several nodes.
    """

    name: str
    state: str = ""
    physical: str = ""
    link_layer: str = ""
    host: str = ""

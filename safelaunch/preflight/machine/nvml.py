"""What NVML says about this machine, as plain data. The library itself is only ever loaded in `nvml_probe`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from safelaunch import procfs
from safelaunch.codec import from_json
from safelaunch.preflight.machine.child import Ended

# nvmlReturn_t of NVIDIA's nvml.h.
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25

# Answers that mean "this GPU, or this driver, has no such thing". An unknown field id is an invalid argument.
UNSUPPORTED = (INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH)


@dataclass(frozen=True)
class Failure:
    """A call that NVML answered with an error. `code` is nvmlReturn_t."""

    call: str
    code: int
    text: str


@dataclass(frozen=True)
class Unread:
    """A reading that a GPU does not give, and why: the call, nvmlReturn_t and NVML's own words."""

    reading: str
    call: str
    code: int
    text: str

    @property
    def unsupported(self) -> bool:
        return self.code in UNSUPPORTED


@dataclass(frozen=True)
class GpuProcess:
    """A process with a CUDA context. NVML numbers processes as the host does, not as a container; `memory` is in
    bytes, None where the driver does not say."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Remapped:
    """Rows of GPU memory that were replaced after correctable and uncorrectable errors, whether some wait for a reset
    of the GPU, and whether replacing one has failed."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class Link:
    """One NVLink: whether it is active, and what it leads to: `gpu`, `switch`, `cpu`, or empty where that is not
    known, with its PCI address."""

    active: bool
    kind: str = ""
    address: str = ""


@dataclass(frozen=True)
class Fabric:
    """The NVLink fabric of NVSwitches as a GPU sees it: nvmlGpuFabricState_t, the result of its registration
    (nvmlReturn_t), and from newer drivers the mask and the summary of its health."""

    state: int
    status: int
    mask: int | None = None
    summary: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory is in bytes, temperatures are in degrees Celsius, `address` is its PCI address as sysfs has it.

    A reading that is not there is None (or empty), and `unread` says why; under `link_ends` it says so of what its
    active links lead to. After a failure all readings are missing.
    Modes and counters are passed on as nvml.h has them; ECC counters are of uncorrectable errors. `display` says that a
    desktop has memory of it, with or without a monitor; `clock_reasons` are those of two looks, where the first had one
    that holds the clocks back. `busy` (percent of the driver's last sampling period in which a kernel ran) and the
    clocks of the SMs, in MHz, are read at an incident alone.
    """

    index: int
    uuid: str = ""
    name: str = ""
    memory_total: int = 0
    memory_used: int = 0
    mig: bool = False
    processes: tuple[GpuProcess, ...] = ()
    display: bool | None = None
    failure: Failure | None = None
    address: str = ""
    unread: tuple[Unread, ...] = ()
    recovery_action: int | None = None
    compute_mode: int | None = None
    mig_pending: bool | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_volatile: int | None = None
    ecc_sram: int | None = None
    remapped: Remapped | None = None
    clock_reasons: int | None = None
    temperature: int | None = None
    slowdown_at: int | None = None
    margin: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    links: tuple[Link, ...] = ()
    fabric: Fabric | None = None
    busy: int | None = None
    clock: int | None = None
    clock_max: int | None = None

    def __str__(self) -> str:
        """Its full name: index, UUID and PCI address."""
        known = ", ".join(filter(None, (self.uuid, self.address)))
        return f"GPU {self.index} ({known})" if known else f"GPU {self.index}"

    @property
    def active_links(self) -> int:
        return sum(link.active for link in self.links)

    def why_unread(self, reading: str) -> Unread | None:
        return next((entry for entry in self.unread if entry.reading == reading), None)


@dataclass(frozen=True)
class Pair:
    """Two GPUs, by index: nvmlGpuTopologyLevel_t of what joins them on PCIe, and nvmlGpuP2PStatus_t over NVLink."""

    a: int
    b: int
    ancestor: int | None = None
    p2p: int | None = None
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """All of NVML at one moment. `failure` is set when NVML did not start; `driver` is empty where the version is not
    told. `stuck_in` names the call that had not
    returned after `waited_s` seconds and `stuck_gpus` its GPU, or two: of the GPUs, the first `asked` have their
    readings, those behind them a name only. `unknown` says why the probe itself failed."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    failure: Failure | None = None
    stuck_in: str = ""
    unknown: str = ""
    pairs: tuple[Pair, ...] = ()
    stuck_gpus: tuple[int, ...] = ()
    waited_s: float = 0.0
    asked: int | None = None

    @property
    def absent(self) -> bool:
        """No driver to ask: the normal state of a machine without NVIDIA GPUs."""
        return self.failure is not None and self.failure.code in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)

    @property
    def answers(self) -> bool:
        return not (self.failure or self.stuck_in or self.unknown)

    @property
    def read(self) -> tuple[Gpu, ...]:
        """The GPUs that were asked, and answered."""
        return tuple(gpu for gpu in self.gpus[: self.asked] if not gpu.failure)


def from_probe(ended: Ended, waited_s: float = 0.0) -> Snapshot:
    """Read what the probe printed; of a GPU that came twice the later counts. Of a probe that did not finish, keep
    what it had read, and say where it was."""
    known: dict[str, Any] = {"gpus": [], "pairs": []}
    asked, complete = 0, False
    for line in _lines(ended.stdout):
        if "identity" in line:
            known["gpus"].append(line["identity"])
        elif "gpu" in line:
            known["gpus"][line["gpu"]["index"]] = line["gpu"]
            asked += 1
        elif "pair" in line:
            known["pairs"].append(line["pair"])
        else:
            known.update(line)
        complete = complete or line.get("complete", False)
    if ended.timed_out:
        stuck_in = ended.last_line or "the start of Python"
        numbers = re.findall(r"\d+", stuck_in.partition(" of GPU")[2])
        known.update(stuck_in=stuck_in, stuck_gpus=[*map(int, numbers)], waited_s=waited_s, asked=asked)
    elif not complete:
        known.update(unknown=f"the NVML probe ended with {ended.returncode}: {ended.last_line}", asked=asked)
    return from_json(Snapshot, known)


def _lines(stdout: str) -> Iterable[dict[str, Any]]:
    for line in procfs.lines(stdout):
        try:
            value = json.loads(line)
        except ValueError:
            return  # cut short in the middle of a write
        if isinstance(value, dict):
            yield value

"""What NVML says about this machine, as plain data. The library itself is only ever loaded in `nvml_probe`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from safelaunch.codec import from_json
from safelaunch.preflight.machine.child import Ended

# nvmlReturn_t of NVIDIA's nvml.h.
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18


@dataclass(frozen=True)
class Failure:
    """A call that NVML answered with an error. `code` is nvmlReturn_t."""

    call: str
    code: int
    text: str


@dataclass(frozen=True)
class GpuProcess:
    """A process with a CUDA context. NVML numbers processes as the host does, not as a container; `memory` is in
    bytes, None where the driver does not say."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory is in bytes; after a failure the fields behind it keep their defaults."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_total: int = 0
    memory_used: int = 0
    mig: bool = False
    processes: tuple[GpuProcess, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class Snapshot:
    """All of NVML at one moment. `failure` is set when NVML did not start, `stuck_in` names the call that had not
    returned at the deadline, `unknown` says why the probe itself failed."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    failure: Failure | None = None
    stuck_in: str = ""
    unknown: str = ""

    @property
    def absent(self) -> bool:
        """No driver to ask: the normal state of a machine without NVIDIA GPUs."""
        return self.failure is not None and self.failure.code in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED)

    @property
    def answers(self) -> bool:
        return not (self.failure or self.stuck_in or self.unknown)


def from_probe(ended: Ended) -> Snapshot:
    """Read what the probe printed, or, of one that did not finish, where it was."""
    if ended.timed_out:
        return Snapshot(stuck_in=ended.last_line or "the start of Python")
    try:
        return from_json(Snapshot, json.loads(ended.stdout))
    except (ValueError, TypeError, KeyError):
        return Snapshot(unknown=f"the NVML probe ended with {ended.returncode}: {ended.last_line}")

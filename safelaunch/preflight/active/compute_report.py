"""What the compute probe says about the devices of a node. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from safelaunch.preflight.active.progress import Progress

STEPS = ("the first kernel", "the GEMM", "the copy of memory")


@dataclass(frozen=True)
class DeviceReport(Progress):
    """What one device did.

    `hashes` are of the same product of whole numbers, computed again and again; `flops` and `copied` are rates per
    second, of floating-point operations and of bytes read and written. What NVML said during the GEMM of `load_s`
    seconds: `clocks` (MHz of the SMs) and `reasons` (clock event reasons) as often as it was asked, corrected ECC
    errors before and after; empty and None where the device has no such thing, with `nvml_error` where it has and
    NVML failed.
    """

    steps: ClassVar[tuple[str, ...]] = STEPS

    hashes: tuple[str, ...] = ()
    flops: float = 0.0
    copied: float = 0.0
    load_s: float = 0.0
    clocks: tuple[int, ...] = ()
    reasons: tuple[int, ...] = ()
    corrected_before: int | None = None
    corrected_after: int | None = None
    nvml_error: str = ""


@dataclass(frozen=True)
class ComputeReport:
    """The whole probe. Times are seconds; `error` is set when torch could not be imported, from `torch_path`."""

    devices: tuple[DeviceReport, ...] = ()
    import_s: float = 0.0
    torch_path: str = ""
    error: str = ""


@dataclass(frozen=True)
class Device:
    """A device as it is named: `name` in a sentence (`GPU 3`, `rank 3`), `where` in full, and its model, empty for a
    CPU rank; with what it did."""

    name: str
    where: str
    model: str
    did: DeviceReport

"""Devices that have worked, as the compute probe would report them."""

from __future__ import annotations

from typing import Any

from safelaunch.preflight.active.compute_report import Device, DeviceReport

HEALTHY: dict[str, Any] = {
    "entered": 3,
    "left": 3,
    "hashes": ("a",) * 8,
    "flops": 600e12,
    "copied": 3e12,
    "load_s": 2.0,
    "clocks": (1755,) * 40,
    "reasons": (0x4,) * 40,
    "corrected_before": 7,
    "corrected_after": 7,
}


def gpu(index: int, model: str = "NVIDIA H100 80GB HBM3", **changes: Any) -> Device:
    name = f"GPU {index}"
    return Device(name, f"{name} (GPU-{index:08d}, 0000:{index:02x}:00.0)", model, did(index, **changes))


def rank(index: int, **changes: Any) -> Device:
    sensors = {"clocks": (), "reasons": (), "corrected_before": None, "corrected_after": None}
    return Device(f"rank {index}", f"rank {index} on the CPU", "", did(index, **sensors, **changes))


def did(index: int, **changes: Any) -> DeviceReport:
    return DeviceReport(index, **{**HEALTHY, **changes})


def node(**changes: Device) -> list[Device]:
    """Eight healthy GPUs; `g3=gpu(3, ...)` replaces GPU 3."""
    return [changes.get(f"g{index}", gpu(index)) for index in range(8)]

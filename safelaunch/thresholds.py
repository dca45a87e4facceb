"""The numbers from which a finding of the preflight counts, each with its source. A profile may set every one of them
in `[preflight.thresholds]`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A number, its unit (empty for a share), what it decides, and where it comes from."""

    value: float
    unit: str
    meaning: str
    source: str


THRESHOLDS: dict[str, Threshold] = {
    "gpu_memory_in_use": Threshold(
        0.05,
        "",
        "share of a GPU's memory in use from which SL109 warns",
        "an estimate: it leaves desktops and idle contexts in peace",
    ),
    "gpu_memory_occupied": Threshold(
        0.30,
        "",
        "share of a GPU's memory in use from which SL109 refuses",
        "intelligent-machine-learning/dlrover, dlrover/trainer/torch/node_check",
    ),
}

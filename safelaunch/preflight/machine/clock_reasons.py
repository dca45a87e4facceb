"""Why the clocks of a GPU are held back: the clock event reasons of nvml.h (nvmlClocksEventReasons) that are faults."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.model import Severity

COOLING = "have an admin look at the cooling: fans, dust, air flow of the rack"
POWER = "have an admin look at the power supplies, their cabling and the PDU"


@dataclass(frozen=True)
class Reason:
    """A bit of the mask, how bad it is, what nvidia-smi calls it, and what to do."""

    bit: int
    severity: Severity
    words: str
    remedy: str


HW_THERMAL = Reason(0x40, "error", "hardware thermal slowdown", COOLING)
POWER_BRAKE = Reason(0x80, "error", "hardware power brake", POWER)
SW_THERMAL = Reason(0x20, "warning", "software thermal slowdown", COOLING)
# The hardware sets it beside the two errors as well; alone it does not tell heat from power.
HW_SLOWDOWN = Reason(0x08, "warning", "hardware slowdown", f"{POWER}, and at the cooling")

# What holds clocks down in everyday life, and tells something only of a GPU that is slower than its peers.
LIMITS = {0x04: "software power cap", 0x02: "clocks set by a user", 0x10: "sync boost with a slower GPU"}

# The one that tells most comes first. Idle, power cap and settings of the user (0x1, 0x4, 0x2, ...) are everyday life.
REASONS = (HW_THERMAL, POWER_BRAKE, SW_THERMAL, HW_SLOWDOWN)

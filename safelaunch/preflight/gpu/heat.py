"""Checks of heat and power: why clocks are lowered, and how hot the GPUs are."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu

# nvmlClocksEventReasons of nvml.h. Idle, power cap and settings of the user (0x1, 0x4, 0x2, ...) are everyday life.
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80

COOL = "have an admin look at fans, dust and the cooling of the rack"
POWER = "have an admin look at the power supplies and the PDU"


def clocks(host: Host) -> Iterator[Finding]:
    """The hardware holds back the clocks of a GPU, for heat or for want of power.

    A slow GPU slows down the whole job: every collective waits for it.

    How it is concluded: nvmlDeviceGetCurrentClocksEventReasons (before driver 535: ...ThrottleReasons). Hardware
    thermal slowdown (0x40) and power brake (0x80) are errors, other hardware slowdown (0x8) and software thermal
    slowdown (0x20) warnings: leptonai/gpud calls these hardware slowdowns as well, Azure/azurehpc-health-checks logs
    them, DCGM monitors them. Power cap and idle clocks are normal. A GPU at its slowdown temperature is SL122's.

    What to do: power brake: the power supply or PDU asks for less, which an admin has to look into. Heat: cooling.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        reasons = gpu.clock_reasons or 0
        if _margin(gpu) <= 0:
            reasons &= ~(HW_THERMAL | SW_THERMAL | HW_SLOWDOWN)
        because = (f"clock event reasons 0x{reasons:x}",)
        if reasons & POWER_BRAKE:
            yield Fault("error", "slowed down by its power supply (power brake)", because, POWER)
        elif reasons & HW_THERMAL:
            yield Fault("error", "slowed down by the hardware for heat", because, COOL)
        elif reasons & HW_SLOWDOWN:
            yield Fault("warning", "slowed down by the hardware", because, f"{POWER}, and at its cooling")
        elif reasons & SW_THERMAL:
            yield Fault("warning", "slowed down by the driver for heat", because, COOL)

    yield from each_gpu(host, "SL121", "clock event reasons", ("clock_reasons",), judge, "no clocks are held back")


def temperature(host: Host) -> Iterator[Finding]:
    """A GPU is about as hot as it may get, before the job has even started.

    At its slowdown temperature the hardware halves the clocks; above it, the GPU switches itself off.

    How it is concluded: nvmlDeviceGetTemperature against the GPU's own slowdown threshold
    (nvmlDeviceGetTemperatureThreshold), or nvmlDeviceGetMarginTemperature. At the threshold it is an error
    (leptonai/gpud: Degraded above it), from 5 degrees below it a warning (an estimate; `gpu_temperature_margin` in
    [preflight.thresholds]).

    What to do: see what else runs on the GPU (nvidia-smi); otherwise cooling has failed, which an admin has to look
    into.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        margin = _margin(gpu)
        if margin > host.threshold("gpu_temperature_margin"):
            return
        now = "" if gpu.temperature is None else f"{gpu.temperature} C, "
        because = (f"{now}{margin:g} C below the temperature at which its clocks are cut",)
        hot = margin <= 0
        if hot:
            because = (f"{now}and its clocks are cut at {gpu.slowdown_at} C",) if gpu.slowdown_at else because
        yield Fault("error" if hot else "warning", "too hot" if hot else "nearly too hot", because, COOL)

    yield from each_gpu(host, "SL122", "temperature", ("temperature",), judge, "the GPUs are cool enough")


def _margin(gpu: Gpu) -> float:
    """Degrees to the slowdown threshold; infinite where that is not known."""
    if gpu.temperature is not None and gpu.slowdown_at:
        return gpu.slowdown_at - gpu.temperature
    return gpu.margin if gpu.margin is not None else float("inf")

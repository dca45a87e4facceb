"""Checks of heat and power: why clocks are lowered, and how hot the GPUs are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.gpu.look import Fault, each_gpu
from safelaunch.preflight.machine.clock_reasons import COOLING, HW_SLOWDOWN, HW_THERMAL, REASONS, SW_THERMAL
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.machine.nvml import Gpu

BY_THRESHOLD = ("temperature", "slowdown_at")
HEAT = HW_THERMAL.bit | SW_THERMAL.bit | HW_SLOWDOWN.bit


def clocks(host: Host) -> Iterator[Finding]:
    """The hardware holds back the clocks of a GPU, for heat or for want of power.

    A slow GPU slows down the whole job: every collective waits for it.

    How it is concluded: nvmlDeviceGetCurrentClocksEventReasons (before driver 535: ...ThrottleReasons). Hardware
    thermal slowdown (0x40) and power brake (0x80) are errors, other hardware slowdown (0x8) and software thermal
    slowdown (0x20) warnings: leptonai/gpud calls these hardware slowdowns as well, Azure/azurehpc-health-checks logs
    them, DCGM monitors them. Where one of them shows, the GPU is asked again 0.3 s later, and what both answers show
    counts. Power cap and idle clocks are normal. A GPU at its slowdown temperature is SL122's.

    What to do: power brake: the power supply or PDU asks for less, which an admin has to look into. Heat: cooling.
    """

    def judge(gpu: Gpu) -> Iterator[Fault]:
        mask = gpu.clock_reasons or 0
        if _margin(gpu) <= 0:
            mask &= ~HEAT
        reason = next((reason for reason in REASONS if mask & reason.bit), None)
        if reason:
            because = (f"clock event reasons 0x{mask:x}",)
            yield Fault(reason.severity, f"its clocks are held back: {reason.words}", because, reason.remedy)

    yield from each_gpu(host, "SL121", "clock event reasons", ("clock_reasons",), judge, "no clocks are held back")


def temperature(host: Host) -> Iterator[Finding]:
    """A GPU is about as hot as it may get, before the job has even started.

    At its slowdown temperature the hardware halves the clocks; above it, the GPU switches itself off.

    How it is concluded: nvmlDeviceGetTemperature against the GPU's own slowdown threshold
    (nvmlDeviceGetTemperatureThreshold), and nvmlDeviceGetMarginTemperature; the worse of the two counts. At the
    threshold it is an error
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
        because = f"{now}{margin:g} C below the temperature at which its clocks are cut"
        hot = margin <= 0
        if hot and margin == _below_threshold(gpu):
            because = f"{now}and its clocks are cut at {gpu.slowdown_at} C"
        elif hot:
            because = f"{now}and a margin of {margin:g} C to where its clocks are cut (nvmlDeviceGetMarginTemperature)"
        yield Fault("error" if hot else "warning", "too hot" if hot else "nearly too hot", (because,), COOLING)

    yield from each_gpu(host, "SL122", "temperature", _readings, judge, "the GPUs are cool enough")


def _readings(gpu: Gpu) -> Sequence[str]:
    """A temperature tells nothing without its threshold; where they are not supported the margin is enough."""
    missing = [entry for entry in map(gpu.why_unread, BY_THRESHOLD) if entry]
    margin = gpu.why_unread("margin")
    enough = missing and all(entry.unsupported for entry in missing) and not (margin and margin.unsupported)
    return ("margin",) if enough else BY_THRESHOLD


def _margin(gpu: Gpu) -> float:
    """Degrees to the slowdown threshold, by the worse of two answers; infinite where that is not known."""
    return min(_below_threshold(gpu), float("inf") if gpu.margin is None else gpu.margin)


def _below_threshold(gpu: Gpu) -> float:
    if gpu.temperature is None or not gpu.slowdown_at:
        return float("inf")
    return gpu.slowdown_at - gpu.temperature

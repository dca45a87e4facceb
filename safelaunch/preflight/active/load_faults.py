"""How fast GPUs were, and what held them back: from what they did to findings. Pure: no I/O."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch.model import Finding, Severity
from safelaunch.preflight.active.compute_report import Device, DeviceReport
from safelaunch.preflight.check import ok, skipped, unchecked
from safelaunch.preflight.machine.clock_reasons import REASONS

RANKING: dict[Severity, int] = {"warning": 1, "error": 2}


@dataclass(frozen=True)
class Speed:
    """One of the rates of a device, and how it is judged against its peers: shares of their median."""

    code: str
    does: str
    unit: str
    scale: float
    rate: Callable[[DeviceReport], float]
    slow: float
    very_slow: float

    def text(self, *rates: float) -> str:
        """`612 TFLOP/s`, `590 to 612 TFLOP/s`."""
        low, high = (f"{rate / self.scale:.3g}" for rate in (min(rates), max(rates)))
        return f"{low} {self.unit}" if low == high else f"{low} to {high} {self.unit}"


def slow(devices: Sequence[Device], speed: Speed, throttled_share: float = 0.0) -> Iterator[Finding]:
    """SL151 and SL153: GPUs behind the median of those of their model on this node.

    Those whose clocks were held back are left to SL154 where that judges them as severely.
    """
    measured = [device for device in devices if speed.rate(device.did) > 0]
    if not measured:
        yield unchecked(speed.code, "no speed was measured", "no device came so far (see SL150)")
        return
    faults = [fault for group in _models(measured) for fault in _behind(group, speed, throttled_share)]
    yield from faults
    if not faults:
        rates = speed.text(*(speed.rate(device.did) for device in measured))
        who = measured[0].name if len(measured) == 1 else f"{len(measured)} GPUs"
        peers = ", with no peer to compare with" if max(map(len, _models(measured))) == 1 else ""
        yield ok(speed.code, f"{who}: {rates}{peers}")


def _models(devices: Sequence[Device]) -> list[list[Device]]:
    models: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        models[device.model].append(device)
    return list(models.values())


def _behind(devices: Sequence[Device], speed: Speed, throttled_share: float) -> Iterator[Finding]:
    rates = [speed.rate(device.did) for device in devices]
    if len(devices) < 3:
        if min(rates) < speed.slow * max(rates):
            yield _cannot_tell(devices, speed, min(rates) / max(rates))
        return
    median = statistics.median(rates)
    for device, rate in zip(devices, rates, strict=True):
        share = rate / median
        severity: Severity = "error" if share < speed.very_slow else "warning"
        held_back = throttling(device.did, throttled_share)
        if share >= speed.slow or (held_back and RANKING[held_back[0]] >= RANKING[severity]):
            continue
        because = [f"{speed.text(rate)}, the median of {len(devices)} {device.model} is {speed.text(median)}"]
        clocks = [statistics.median(one.did.clocks) for one in devices if one.did.clocks]
        if device.did.clocks:
            own = statistics.median(device.did.clocks)
            because.append(f"SM clock {own:.0f} MHz under load, the median is {statistics.median(clocks):.0f} MHz")
        if held_back:
            because.append(f"{held_back[1]} while it worked (see SL154)")
        yield Finding(
            code=speed.code,
            severity=severity,
            summary=f"{device.name} {speed.does} at {share:.0%} of the speed of its peers",
            because=tuple(because),
            remedy="see that nothing else runs on it (nvidia-smi); have it reset or serviced (admin); until then leave "
            "it out with CUDA_VISIBLE_DEVICES",
            where=device.where,
        )


def _cannot_tell(devices: Sequence[Device], speed: Speed, share: float) -> Finding:
    return Finding(
        code=speed.code,
        severity="warning",
        summary=f"{' and '.join(device.name for device in devices)} differ in speed: cannot tell which is at fault",
        because=(
            *(f"{device.name} {speed.does} at {speed.text(speed.rate(device.did))}" for device in devices),
            f"the slower is at {share:.0%} of the other, and there is no third of this model to compare with",
        ),
        remedy="see that nothing else runs on them (nvidia-smi); compare with another node of this kind",
        where=", ".join(device.where for device in devices),
    )


# ------------------------------------------------------------------------------------------------ sensors


def throttling(did: DeviceReport, least_share: float) -> tuple[Severity, str, str] | None:
    """Severity, words and remedy of what held the clocks back in more than this share of the samples."""
    seen = []
    for reason in REASONS:
        share = sum(bool(mask & reason.bit) for mask in did.reasons) / len(did.reasons) if did.reasons else 0.0
        if share > least_share:
            seen.append((reason.severity, f"{reason.words} in {share:.0%} of the samples", reason.remedy))
    return seen[0] if seen else None


def throttled(devices: Sequence[Device], least_share: float) -> Iterator[Finding]:
    """SL154: GPUs whose clocks were held back by heat or power."""
    for device in devices:
        if held_back := throttling(device.did, least_share):
            severity, words, remedy = held_back
            yield Finding(
                code="SL154",
                severity=severity,
                summary=f"{device.name} was throttled under load: {words.partition(' in ')[0]}",
                because=(words, *_clock(device.did)),
                remedy=remedy,
                where=device.where,
            )
    yield from _silent("SL154", "clocks", devices)
    if not any(throttling(device.did, least_share) or device.did.nvml_error for device in devices):
        asked = [device for device in devices if device.did.reasons]
        yield ok("SL154", "no GPU was throttled under load") if asked else _unsupported("SL154", "clock event reasons")


def corrected(devices: Sequence[Device], most_per_s: float) -> Iterator[Finding]:
    """SL155: GPUs that corrected errors of their memory all the time."""
    counted = []
    bad = False
    for device in devices:
        did = device.did
        if did.corrected_before is None or did.corrected_after is None or not did.load_s:
            continue
        counted.append(device)
        errors = did.corrected_after - did.corrected_before
        if errors / did.load_s > most_per_s:
            bad = True
            yield Finding(
                code="SL155",
                severity="warning",
                summary=f"{device.name} corrects {errors / did.load_s:.0f} memory errors a second",
                because=(f"{errors} corrected ECC errors in {did.load_s:.1f} s of load",),
                remedy="have it reset, and serviced if they come back (admin); `nvidia-smi -q -d ECC` shows the counts",
                where=device.where,
            )
    yield from _silent("SL155", "ECC errors", devices)
    if not bad and not any(device.did.nvml_error for device in devices):
        yield ok("SL155", "no flood of corrected ECC errors under load") if counted else _unsupported("SL155", "ECC")


def _silent(code: str, what: str, devices: Sequence[Device]) -> Iterator[Finding]:
    """The GPUs of which NVML would say nothing while they worked."""
    silent = [device for device in devices if device.did.nvml_error]
    if silent:
        names = ", ".join(device.name for device in silent)
        yield unchecked(code, f"the {what} of {names} were not read under load", silent[0].did.nvml_error)


def _unsupported(code: str, what: str) -> Finding:
    return skipped(code, f"{what}: not supported by these GPUs")


def _clock(did: DeviceReport) -> Iterator[str]:
    if did.clocks:
        yield f"SM clock {min(did.clocks)} to {max(did.clocks)} MHz in {did.load_s:.1f} s of load"

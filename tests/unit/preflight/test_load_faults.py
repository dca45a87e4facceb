"""GPUs that are slow, throttled or full of corrected errors: who is named, and who is left alone."""

from __future__ import annotations

import pytest
from devices import gpu, node
from fake_host import only

from safelaunch.preflight.active.load_faults import Speed, corrected, slow, throttled

GEMM = Speed("SL151", "computes", "TFLOP/s", 1e12, lambda did: did.flops, 0.9, 0.5)
MEMORY = Speed("SL153", "copies", "GB/s", 1e9, lambda did: did.copied, 0.9, 0.5)
THERMAL, BRAKE, SLOWDOWN, SOFT_THERMAL, POWER_CAP = 0x40, 0x80, 0x08, 0x20, 0x04


@pytest.mark.parametrize(("flops", "severity"), [(570e12, "ok"), (530e12, "warning"), (290e12, "error")])
def test_a_gpu_is_judged_by_the_median_of_its_peers(flops: float, severity: str) -> None:
    finding = only(slow(node(g3=gpu(3, flops=flops)), GEMM))
    assert finding.severity == severity
    if severity != "ok":
        assert finding.summary == f"GPU 3 computes at {flops / 600e12:.0%} of the speed of its peers"
        assert finding.where == "GPU 3 (GPU-00000003, 0000:03:00.0)"


def test_the_clock_is_told_of_a_slow_gpu() -> None:
    finding = only(slow(node(g3=gpu(3, flops=400e12, clocks=(1100,) * 40)), GEMM))
    assert finding.because[1] == "SM clock 1100 MHz under load, the median is 1755 MHz"


def test_memory_is_judged_apart() -> None:
    devices = node(g3=gpu(3, copied=1e12))
    assert only(slow(devices, MEMORY)).severity == "error"
    assert only(slow(devices, GEMM)).severity == "ok"


def test_of_two_nobody_can_tell_which_is_slow() -> None:
    finding = only(slow([gpu(0), gpu(1, flops=200e12)], GEMM))
    assert finding.severity == "warning"
    assert finding.summary == "GPU 0 and GPU 1 differ in speed: cannot tell which is at fault"


def test_one_gpu_is_measured_and_not_judged() -> None:
    finding = only(slow([gpu(0, flops=1e12)], GEMM))
    assert (finding.severity, finding.summary) == ("ok", "GPU 0: 1 TFLOP/s, with no peer to compare with")


def test_other_models_are_no_peers() -> None:
    mixed = [gpu(0), gpu(1), gpu(2), gpu(3, "NVIDIA L4", flops=60e12), gpu(4, "NVIDIA L4", flops=60e12)]
    assert only(slow(mixed, GEMM)).severity == "ok"


def test_a_gpu_that_never_worked_is_no_slow_one() -> None:
    assert only(slow(node(g3=gpu(3, entered=2, left=1, flops=0.0)), GEMM)).severity == "ok"
    assert only(slow([gpu(0, flops=0.0)], GEMM)).severity == "unchecked"


@pytest.mark.parametrize(
    ("bits", "severity", "words"),
    [
        (THERMAL | SLOWDOWN, "error", "hardware thermal slowdown"),
        (BRAKE | SLOWDOWN, "error", "hardware power brake"),
        (SLOWDOWN, "warning", "hardware slowdown"),
        (SOFT_THERMAL, "warning", "software thermal slowdown"),
    ],
)
def test_reasons_of_throttling(bits: int, severity: str, words: str) -> None:
    finding = only(throttled(node(g2=gpu(2, reasons=(bits | POWER_CAP,) * 40)), 0.1))
    assert finding.severity == severity
    assert finding.summary == f"GPU 2 was throttled under load: {words}"
    assert finding.where == "GPU 2 (GPU-00000002, 0000:02:00.0)"
    assert "admin" in finding.remedy


def test_the_power_cap_and_a_single_moment_are_no_fault() -> None:
    once = (THERMAL,) + (POWER_CAP,) * 39
    assert only(throttled(node(g2=gpu(2, reasons=once)), 0.1)).severity == "ok"


def test_one_cause_is_told_once() -> None:
    hot = node(g3=gpu(3, flops=200e12, reasons=(THERMAL,) * 40))
    assert only(slow(hot, GEMM, 0.1)).severity == "ok"
    assert only(throttled(hot, 0.1)).severity == "error"


def test_a_slowness_beyond_what_throttling_explains_is_told_with_it() -> None:
    warm = node(g3=gpu(3, flops=200e12, reasons=(SOFT_THERMAL,) * 40))
    finding = only(slow(warm, GEMM, 0.1))
    assert finding.severity == "error"
    assert "see SL154" in finding.because[-1]


def test_sensors_that_fail_are_a_doubt_and_missing_ones_are_not() -> None:
    findings = list(throttled(node(g2=gpu(2, reasons=(), nvml_error="NVML: Unknown Error")), 0.1))
    assert [(finding.severity, finding.because) for finding in findings] == [("unchecked", ("NVML: Unknown Error",))]
    finding = only(throttled([gpu(0, reasons=())], 0.1))
    assert (finding.severity, "not supported" in finding.summary) == ("skipped", True)


def test_a_flood_of_corrected_errors() -> None:
    finding = only(corrected(node(g1=gpu(1, corrected_after=7 + 35_400)), 100.0))
    assert finding.severity == "warning"
    assert finding.summary == "GPU 1 corrects 17700 memory errors a second"
    assert only(corrected(node(g1=gpu(1, corrected_after=8)), 100.0)).severity == "ok"


def test_gpus_without_ecc() -> None:
    finding = only(corrected([gpu(0, corrected_before=None, corrected_after=None)], 100.0))
    assert (finding.severity, finding.summary) == ("skipped", "ECC: not supported by these GPUs")

"""The checks of GPUs at work: real pynvml against a library of our own, while a CPU does the work of the GPUs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from safelaunch.model import Finding, Job
from safelaunch.preflight import CHECKS, runner
from safelaunch.preflight.active.forked import FAULT
from safelaunch.preflight.machine.child import Ended
from safelaunch.preflight.machine.host import Host

GPUS = 4


class Pretending(Host):
    """A host whose GPUs compute on the CPU."""

    def run_probe(self, name: str, *arguments: str, deadline_s: float, **environ: str) -> Ended:
        plain = [{"cuda": "cpu", "nccl": "gloo"}.get(argument, argument) for argument in arguments]
        return super().run_probe(name, *plain, deadline_s=deadline_s, **environ)


def check(nvml_library: str, *codes: str, nvml: str = "", fault: str = "") -> dict[str, list[Finding]]:
    environ = {**os.environ, "LD_LIBRARY_PATH": nvml_library, "FAKE_NVML": f"count={GPUS};{nvml}", FAULT: fault}
    host = Pretending(Job(nproc=GPUS, uses_gpu=True), environ=environ)
    checks = [check for check in CHECKS if check.code in codes]
    report = runner.run(host, checks=checks, deadline_s=100.0, severity={})
    found: dict[str, list[Finding]] = {code: [] for code in codes}
    for finding in report.findings:
        found[finding.code].append(finding)
    return found


def test_healthy_gpus(nvml_library: str) -> None:
    found = check(nvml_library, "SL150", "SL152", "SL154", "SL155")
    assert {code: [finding.severity for finding in findings] for code, findings in found.items()} == {
        code: ["ok"] for code in found
    }
    assert found["SL154"][0].summary == "no GPU was throttled under load"
    assert found["SL155"][0].summary == "no flood of corrected ECC errors under load"


@pytest.mark.long
@pytest.mark.parametrize(
    ("faults", "code", "severity", "summary"),
    [
        ({"nvml": "clk.reasons@2=0x48"}, "SL154", "error", "GPU 2 was throttled under load: hardware thermal slowdown"),
        ({"nvml": "ecc.corr.rise@2=90000000"}, "SL155", "warning", "GPU 2 corrects"),
        ({"fault": "flip@2"}, "SL152", "error", "GPU 2 computed a wrong result"),
        ({"fault": "compute-die@2"}, "SL150", "error", "GPU 2 died with exit code 3 before the GEMM"),
    ],
)
def test_a_fault_names_the_gpu_in_full_and_nothing_else_turns_red(
    nvml_library: str, faults: dict[str, Any], code: str, severity: str, summary: str
) -> None:
    found = check(nvml_library, "SL150", "SL152", "SL154", "SL155", **faults)
    bad = [finding for findings in found.values() for finding in findings if finding.severity != "ok"]
    assert [(finding.code, finding.severity) for finding in bad] == [(code, severity)]
    assert bad[0].summary.startswith(summary)
    assert bad[0].where == "GPU 2 (GPU-00000000-0000-0000-0000-000000000002, 0000:12:00.0)"
    assert bad[0].remedy


def test_a_slow_gpu_is_named(nvml_library: str) -> None:
    # Its peers share the cores of a busy machine and may differ as well, but not a hundredfold.
    found = check(nvml_library, "SL151", nvml="clock.sm@2=345", fault="slow@2")["SL151"]
    (slow,) = [finding for finding in found if finding.where.startswith("GPU 2")]
    assert slow.severity == "error"
    assert any("SM clock 345 MHz under load, the median is 1755 MHz" in line for line in slow.because)


@pytest.mark.long
def test_nvml_that_fails_or_hangs_while_a_gpu_works_is_a_doubt(nvml_library: str) -> None:
    found = check(nvml_library, "SL150", "SL154", nvml="nvmlDeviceGetClockInfo.ret@2=999")
    assert found["SL150"][0].severity == "ok"
    assert [finding.severity for finding in found["SL154"]] == ["unchecked"]
    assert "GPU 2" in found["SL154"][0].summary
    found = check(nvml_library, "SL150", "SL154", nvml="hang@2=nvmlDeviceGetClockInfo")
    assert found["SL150"][0].severity == "ok"
    assert "had no answer" in found["SL154"][0].because[0]


def test_gpus_without_ecc_and_clock_reasons(nvml_library: str) -> None:
    off = ";".join(f"{key}.ret=3" for key in ("clk", "clk.old", "nvmlDeviceGetTotalEccErrors"))
    found = check(nvml_library, "SL154", "SL155", nvml=off)
    assert [found[code][0].severity for code in found] == ["skipped", "skipped"]
    assert "not supported" in found["SL154"][0].summary
    assert "not supported" in found["SL155"][0].summary

"""Each fault of a GPU through the whole command line: real pynvml in a child, against a library of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest

Report = dict[str, Any]

QUIET = ("ok", "skipped")

# Faults as fake_nvml.c takes them; code and severity that they must have; the GPU that must be named (None: no single
# one); a word of the remedy. Each case is a process of its own; CI runs one for each way to conclude, and
# tests/unit/preflight judges the others without a command line.
FAULTS = [
    ("lost@3=1", "SL108", "error", 3, "reboot the node"),
    ("mem.ret@3=16", "SL108", "error", 3, "--gpu-reset -i 3"),
    ("count=7", "SL107", "error", None, "--nproc-per-node 7"),
    ("mem.used@3=40000000000;proc@3=4242", "SL109", "error", 3, "CUDA_VISIBLE_DEVICES"),
    ("proc@3=4242", "SL109", "note", 3, ""),
    ("mem.used@3=10000000000", "SL109", "warning", 3, "CUDA_VISIBLE_DEVICES"),
    ("mem.used@3=40000000000;display@3=1", "SL109", "warning", 3, "CUDA_VISIBLE_DEVICES"),
    ("fv.230@3=1", "SL112", "error", 3, "admin reset it (nvidia-smi --gpu-reset -i 3)"),
    ("fv.230@3=2", "SL112", "error", 3, "admin reboot"),
    ("compute_mode@3=2", "SL113", "error", 3, "nvidia-smi -c DEFAULT -i 3"),
    ("compute_mode@3=3;proc@3=4242", "SL113", "warning", 3, "end that process"),
    ("mig@3=1", "SL114", "error", 3, "nvidia-smi -i 3 -mig 0"),
    ("mig.pending@3=1", "SL114", "warning", 3, "admin"),
    ("persist=0", "SL115", "note", None, "nvidia-persistenced"),
    ("ecc.mode@3=0", "SL117", "warning", 3, "nvidia-smi -i 3 -e 1"),
    ("ecc.pending@3=0", "SL117", "warning", 3, "nvidia-smi -i 3 -e 1"),
    ("ecc.unc.vol@3=2", "SL118", "error", 3, "--gpu-reset -i 3"),
    ("ecc.sram.agg@3=5", "SL118", "warning", 3, "RMA"),
    ("remap.pending@3=1", "SL119", "error", 3, "--gpu-reset -i 3"),
    ("remap.failed@3=1", "SL119", "error", 3, "RMA"),
    ("remap.unc@3=512", "SL119", "error", 3, "RMA"),
    ("clk.reasons@3=0x48", "SL121", "error", 3, "cooling"),
    ("clk.reasons@3=0x88", "SL121", "error", 3, "power supplies"),
    ("clk.reasons@3=0x8", "SL121", "warning", 3, "admin"),
    ("clk.reasons@3=0x20", "SL121", "warning", 3, "cooling"),
    ("temp@3=84", "SL122", "warning", 3, "cooling"),
    ("temp.margin@3=-4", "SL122", "error", 3, "cooling"),
    ("temp@3=88;clk.reasons@3=0x48", "SL122", "error", 3, "cooling"),
    ("pcie.width@3=8", "SL123", "error", 3, "reseat"),
    ("pcie.width=8", "SL123", "note", None, "wired"),
    ("nvlink.down@3=2", "SL124", "error", 3, "admin reset"),
    ("nvlink.down@3=18", "SL124", "error", 3, "admin reset"),
    ("nvlink.down=18;p2p=5", "SL124", "warning", None, "nvidia-fabricmanager"),
    ("p2p@3=5", "SL125", "warning", 3, "nvidia-fabricmanager"),
    ("p2p=5", "SL125", "error", None, "nvidia-fabricmanager"),
    ("fabric.state@3=2;p2p@3=5", "SL126", "error", 3, "nvidia-fabricmanager"),
    ("fabric.status@3=23", "SL126", "error", 3, "nvidia-fabricmanager"),
    ("fabric.summary@3=2", "SL126", "error", 3, "nvidia-fabricmanager"),
    ("fabric.mask@3=0xa9", "SL126", "error", 3, "nvidia-fabricmanager"),
    ("name@3=NVIDIA A100-SXM4-80GB", "SL127", "warning", 3, "alike"),
    ("mem.total@3=42949672960", "SL127", "warning", 3, "alike"),
    ("nvlink.count@3=12", "SL127", "warning", 3, "alike"),
    ("pcie.width@3=8;pcie.maxwidth@3=8", "SL127", "warning", 3, "alike"),
    ("remap.ret@3=4", "SL119", "unchecked", 3, ""),
    ("temp.ret@3=999;temp.new.ret@3=999", "SL122", "unchecked", 3, ""),
    ("nvlink.type.ret=4", "SL125", "unchecked", None, ""),
]
IN_CI = {
    "lost@3=1",
    "count=7",
    "mem.used@3=40000000000;proc@3=4242",
    "fv.230@3=1",
    "ecc.unc.vol@3=2",
    "temp.margin@3=-4",
    "nvlink.down@3=2",
    "p2p@3=5",
    "fabric.state@3=2;p2p@3=5",
    "remap.ret@3=4",
}

# What healthy machines have: a reading that is not supported, a driver before 535, cards without NVLink or fabric,
# H100 NVL with 12 of 18 links, and a health of the fabric that is not supported.
HEALTHY = [
    "remap.ret=3;ecc.mode.ret=3;fv.230.ret=2;mig.ret=3;persist.ret=3",
    "driver=525.85;clk.ret=13;fv.230.ret=2;fabric.version=1;temp.margin.ret=13",
    "nvlink.ret=3;p2p=5;fabric.state=0;fabric.mask=0;fabric.summary=0",
    "nvlink.down=6",
    "fabric.summary=0;fabric.mask=0",
    "compute_mode=3",
    "clk.reasons=0x5",
    "clk.reasons.first=0x88",
    "display=1;mem.used=2000000000",
    "display.ret=3",
    "nvmlDeviceGetComputeRunningProcesses_v3.ret=13",
    "proc.ret=13;driver.ret=3;name.ret=3;pci.ret=3",
    "nvlink.type.ret=3",
    "pcie.width.ret=3;temp.slowdown.ret=3;temp.margin.ret=13;ecc.ret=3;ecc.counter.ret=3;p2p.ret=3",
]
HEALTHY_IN_CI = {HEALTHY[0], "proc.ret=13;driver.ret=3;name.ret=3;pci.ret=3"}


def long_unless(cases: Sequence[Any], in_ci: Set[str]) -> list[Any]:
    """The cases as parameters, with the fault as their name; those that CI leaves out are marked."""
    faults = [case if isinstance(case, str) else case[0] for case in cases]
    assert in_ci <= set(faults)
    return [
        pytest.param(
            *([case] if isinstance(case, str) else case), id=fault, marks=[pytest.mark.long] * (fault not in in_ci)
        )
        for case, fault in zip(cases, faults, strict=True)
    ]


@pytest.fixture(scope="module")
def node(cuda_node: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**cuda_node, "HOME": str(tmp_path_factory.mktemp("home"))}


def check(node: dict[str, str], *arguments: str, **environ: str) -> tuple[int, Report]:
    done = subprocess.run(
        [sys.executable, "-m", "safelaunch", "check", "--json", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **node, **environ},
        timeout=110,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def faults(report: Report) -> set[tuple[str, str]]:
    return {(entry["code"], entry["severity"]) for entry in report["findings"] if entry["severity"] not in QUIET}


def errors(report: Report) -> set[str]:
    return {code for code, severity in faults(report) if severity == "error"}


@pytest.fixture(scope="module")
def healthy(node: dict[str, str]) -> Report:
    code, report = check(node, "--nproc-per-node", "8")
    assert code == 0
    return report


def test_a_healthy_node_has_no_fault_of_a_gpu(healthy: Report) -> None:
    gpu = [entry for entry in healthy["findings"] if "SL107" <= entry["code"] <= "SL128" and entry["code"] != "SL111"]
    # The PCI bus of this machine does not have these GPUs.
    assert {entry["severity"] for entry in gpu if entry["code"] != "SL128"} == {"ok"}
    assert len(gpu) == 21


@pytest.mark.parametrize(("fault", "code", "severity", "gpu", "remedy"), long_unless(FAULTS, IN_CI))
def test_a_fault_has_its_code_and_nothing_else_turns(
    node: dict[str, str], healthy: Report, fault: str, code: str, severity: str, gpu: int | None, remedy: str
) -> None:
    exit_code, report = check(node, "--nproc-per-node", "8", FAKE_NVML=fault)

    assert faults(report) - faults(healthy) == {(code, severity)}
    assert faults(healthy) <= faults(report)
    (finding,) = (entry for entry in report["findings"] if entry["code"] == code)
    assert exit_code == (69 if severity == "error" else 0)
    assert finding["because"]
    assert remedy in finding["remedy"]
    if gpu is not None:
        assert f"GPU {gpu}" in finding["summary"]
        assert finding["where"] == f"GPU {gpu} (GPU-00000000-0000-0000-0000-00000000000{gpu}, 0000:1{gpu}:00.0)"


@pytest.mark.parametrize("machine", long_unless(HEALTHY, HEALTHY_IN_CI))
def test_other_healthy_machines_have_no_fault(node: dict[str, str], healthy: Report, machine: str) -> None:
    code, report = check(node, "--nproc-per-node", "8", FAKE_NVML=machine)
    assert faults(report) == faults(healthy)
    assert code == 0


def test_gpus_that_the_job_does_not_use_are_not_judged(node: dict[str, str], healthy: Report) -> None:
    fault = "ecc.unc.vol@7=2;fv.230@7=2;nvlink.down@7=3;p2p@7=5;persist@7=0;temp@7=99"
    code, report = check(node, "--nproc-per-node", "2", FAKE_NVML=fault)
    assert faults(report) <= faults(healthy)
    assert code == 0


def test_a_hang_costs_its_deadline_and_is_the_fault_that_it_is(node: dict[str, str], tmp_path: Path) -> None:
    profile = tmp_path / "patient.toml"
    profile.write_text("[preflight.thresholds]\nnvml_deadline = 4\n")
    code, report = check(node, "--profile", str(profile), FAKE_NVML="hang@2=nvmlDeviceGetTemperature")

    assert code == 69
    assert errors(report) == {"SL108"}
    (finding,) = (entry for entry in report["findings"] if entry["severity"] == "error")
    assert finding["summary"] == "GPU 2 did not answer within 4 s"
    assert "nvmlDeviceGetTemperature of GPU 2" in finding["because"][0]
    assert finding["where"] == "GPU 2 (GPU-00000000-0000-0000-0000-000000000002, 0000:12:00.0)"
    assert "reboot the node" in finding["remedy"]
    assert 4 <= report["elapsed_s"] < 9


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [("init.ret=18", "SL108", "reload the nvidia module"), ("init.ret=9", "SL107", "run on a node with GPUs")],
)
def test_a_driver_that_does_not_start(node: dict[str, str], fault: str, code: str, word: str) -> None:
    exit_code, report = check(node, "--nproc-per-node", "gpu", FAKE_NVML=fault)
    assert exit_code == 69
    assert errors(report) == {code}
    assert word in next(entry["remedy"] for entry in report["findings"] if entry["severity"] == "error")


def test_behind_a_driver_that_does_not_start_nothing_passes(node: dict[str, str], healthy: Report) -> None:
    _, report = check(node, "--nproc-per-node", "8", FAKE_NVML="init.ret=18")
    found = {(code, severity) for code, severity in faults(report) - faults(healthy) if severity != "unchecked"}
    assert found == {("SL108", "error")}
    assert ("SL118", "unchecked") in faults(report)


def test_a_variable_for_debugging(node: dict[str, str], healthy: Report) -> None:
    _, report = check(node, "--nproc-per-node", "8", CUDA_LAUNCH_BLOCKING="1")
    assert faults(report) - faults(healthy) == {("SL116", "warning")}


def test_a_profile_knows_how_many_links_there_must_be(node: dict[str, str], tmp_path: Path) -> None:
    profile = tmp_path / "h100.toml"
    profile.write_text("[preflight.thresholds]\ngpu_nvlinks = 18\n")
    arguments = ("--profile", str(profile), "--nproc-per-node", "8")
    assert ("SL124", "warning") in faults(check(node, *arguments, FAKE_NVML="nvlink.down=6")[1])
    assert ("SL124", "warning") not in faults(check(node, *arguments)[1])

"""What NVML does not tell is no pass: real pynvml against a library of our own, through the checks themselves."""

from __future__ import annotations

import os

import pytest
from fake_host import only

from safelaunch.model import Finding, Job
from safelaunch.preflight import CHECKS
from safelaunch.preflight.machine.host import Host

GPU_CHECKS = {check.code: check for check in CHECKS if check.group == "gpu"}


def findings(nvml_library: str, faults: str, code: str, nproc: int = 8) -> list[Finding]:
    environ = {**os.environ, "LD_LIBRARY_PATH": nvml_library, "FAKE_NVML": faults}
    host = Host(Job(nproc=nproc, uses_gpu=True), environ=environ)
    return list(GPU_CHECKS[code].function(host))


@pytest.mark.parametrize(
    ("faults", "code", "severity", "says"),
    [
        ("pcie.width.ret=3", "SL123", "skipped", "PCIe width: not supported by GPUs 0-7"),
        ("pcie.maxwidth.ret=3", "SL123", "skipped", "nvmlDeviceGetMaxPcieLinkWidth"),
        ("pcie.width.ret@2=3", "SL123", "ok", "GPU 2, not looked at"),
        ("temp.slowdown.ret=3;temp.margin.ret=13", "SL122", "skipped", "nvmlDeviceGetTemperatureThreshold"),
        ("temp.slowdown.ret=3", "SL122", "ok", "cool enough"),
        ("temp.margin.ret=13", "SL122", "ok", "cool enough"),
        ("temp.ret=3;temp.new.ret=3", "SL122", "ok", "cool enough"),
        ("ecc.ret=3", "SL118", "ok", "of SRAM; those since the driver was loaded are not counted by these GPUs"),
        ("ecc.counter.ret=3", "SL118", "ok", "since the driver was loaded; those of SRAM are not counted"),
        ("ecc.ret=3;ecc.counter.ret=3", "SL118", "skipped", "ECC errors: not supported by GPUs 0-7"),
        ("ecc.ret=4", "SL118", "unchecked", "ECC errors of GPUs 0-7 not looked at"),
        ("ecc.ret@2=3", "SL118", "ok", "GPU 2, not looked at"),
        ("proc.ret=13", "SL109", "ok", "not all show the processes on them"),
        ("nvlink.ret=3;p2p=5", "SL124", "skipped", "NVLink: not supported by GPUs 0-7"),
        ("nvlink.ret=3;p2p=5", "SL125", "skipped", "no two GPUs of the job share an NVLink"),
        ("fabric.state=0", "SL126", "skipped", "no NVLink fabric here"),
        ("lost=1", "SL119", "skipped", "no GPU to look at"),
        ("lost=1", "SL120", "skipped", "no GPU to look at"),
        ("count=1", "SL127", "skipped", "one GPU, nothing to compare"),
        ("name.ret=3", "SL127", "skipped", "the model: not supported by GPUs 0-7"),
        ("name.ret@3=3", "SL127", "ok", "the GPUs are alike (GPU 3, not looked at"),
        ("name.ret@3=4", "SL127", "unchecked", "the model of GPU 3 not looked at"),
        ("driver.ret=3", "SL108", "ok", "NVIDIA driver of a version that it does not tell, 8 GPUs"),
        ("p2p.ret=3", "SL125", "skipped", "peer-to-peer access: not supported by GPUs 0-7"),
        ("nvlink.type.ret=3", "SL125", "ok", "GPUs reach one another over NVLink"),
    ],
)
def test_what_is_not_told_is_no_pass(nvml_library: str, faults: str, code: str, severity: str, says: str) -> None:
    finding = only(iter(findings(nvml_library, faults, code)))
    assert finding.severity == severity
    assert says in finding.summary


@pytest.mark.parametrize(
    ("faults", "gpus", "because"),
    [
        ("nvlink.ret=4", "GPUs 0-7", ("nvmlDeviceGetNvLinkState: Insufficient Permissions", "between all of GPUs 0-7")),
        ("nvlink.type.ret=999", "GPUs 0-7", ("nvmlDeviceGetNvLinkRemoteDeviceType: Unknown Error",)),
        ("nvlink.type.ret=3;p2p=5", "GPUs 0-7", ("nvmlDeviceGetNvLinkRemoteDeviceType: Not Supported",)),
        ("nvmlDeviceGetP2PStatus.ret=4", "GPUs 0-7", ("nvmlDeviceGetP2PStatus: Insufficient Permissions",)),
        (
            "count=3;p2p.ret@1=4",
            "GPUs 0-2",
            ("nvmlDeviceGetP2PStatus: Insufficient Permissions", "between 0 and 1, 1 and 2"),
        ),
        (
            "count=3;nvlink.ret@1=4",
            "GPUs 0-2",
            ("nvmlDeviceGetNvLinkState: Insufficient Permissions", "between 0 and 1, 1 and 2"),
        ),
    ],
)
def test_all_pairs_that_were_not_looked_at_are_named(
    nvml_library: str, faults: str, gpus: str, because: tuple[str, ...]
) -> None:
    finding = only(iter(findings(nvml_library, faults, "SL125")))
    assert (finding.severity, finding.summary) == ("unchecked", f"peer-to-peer access of {gpus} not looked at")
    assert finding.because[: len(because)] == because


def test_a_link_to_another_gpu_is_not_affected_by_one_that_is_refused(nvml_library: str) -> None:
    bridges = "count=4;nvlink.count=4;nvlink.peer@0=1;nvlink.peer@1=0;nvlink.peer@2=3;nvlink.peer@3=2"
    finding = only(iter(findings(nvml_library, f"{bridges};nvlink.ret@3=4", "SL125")))
    assert (finding.severity, finding.summary) == ("ok", "GPUs reach one another over NVLink")


def test_a_gpu_that_may_not_be_used_says_who_can_change_that(nvml_library: str) -> None:
    finding = only(iter(findings(nvml_library, "nvmlDeviceGetHandleByIndex_v2.ret@5=4", "SL108")))
    assert (finding.severity, finding.summary) == ("error", "GPU 5 may not be used: Insufficient Permissions")
    assert "/dev/nvidia5" in finding.remedy
    assert "device cgroup" in finding.remedy
    assert "dmesg" not in finding.remedy

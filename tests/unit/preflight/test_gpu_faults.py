"""What the checks of GPUs say in the corners that a fault through the command line does not reach."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_host import GIB, FakeHost, gpus, only, write

from safelaunch.model import Job
from safelaunch.preflight import CHECKS
from safelaunch.preflight.gpu.debug_variables import debug_variables
from safelaunch.preflight.gpu.driver import driver
from safelaunch.preflight.gpu.heat import temperature
from safelaunch.preflight.gpu.links import nvlink, p2p
from safelaunch.preflight.gpu.memory_errors import ecc_errors, row_remap
from safelaunch.preflight.gpu.modes import mig
from safelaunch.preflight.gpu.peers import alike
from safelaunch.preflight.machine.nvml import Failure, Gpu, Link, Pair, Snapshot, Unread

GPU_JOB = Job(nproc=8, uses_gpu=True)
GPU_CHECKS = [check for check in CHECKS if check.group == "gpu"]


def changed(count: int, **changes: object) -> Snapshot:
    """A healthy node whose GPU 1 has other values."""
    gpu = dataclasses.replace(gpus(count).gpus[1], **changes)  # type: ignore[arg-type]
    return gpus(count, g1=gpu)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.name)
def test_a_job_without_gpus_and_a_machine_without_a_driver_are_fine(tmp_path: Path, check: object) -> None:
    assert only(check.function(FakeHost(tmp_path, Job(nproc=4)))).severity == "skipped"  # type: ignore[attr-defined]


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.name)
def test_no_check_passes_gpus_that_were_not_asked(tmp_path: Path, check: object) -> None:
    if check.code in ("SL108", "SL116"):  # type: ignore[attr-defined]
        pytest.skip("its own fault; and looks at the environment alone")
    stuck = dataclasses.replace(gpus(8), stuck_in="nvmlDeviceGetName of GPU 2", stuck_gpus=(2,), asked=2)
    assert only(check.function(FakeHost(tmp_path, GPU_JOB, snapshot=stuck))).severity == "unchecked"  # type: ignore[attr-defined]


def test_a_fault_read_before_a_hang_is_told_as_well(tmp_path: Path) -> None:
    snapshot = dataclasses.replace(changed(8, ecc_volatile=3), stuck_in="x of GPU 2", stuck_gpus=(2,), asked=2)
    severities = [finding.severity for finding in ecc_errors(FakeHost(tmp_path, GPU_JOB, snapshot=snapshot))]
    assert severities == ["error", "unchecked"]


def test_equal_faults_are_one_finding_that_names_all_gpus(tmp_path: Path) -> None:
    hot = Snapshot(tuple(dataclasses.replace(gpu, ecc_volatile=1) for gpu in gpus(4).gpus))
    finding = only(ecc_errors(FakeHost(tmp_path, GPU_JOB, snapshot=hot)))
    assert finding.summary.startswith("GPUs 0-3: ")
    assert "--gpu-reset -i 0,1,2,3" in finding.remedy
    assert finding.where.count("GPU-0000000") == 4


def test_a_reading_that_some_gpus_do_not_have_is_said(tmp_path: Path) -> None:
    without = (Unread("remapped", "nvmlDeviceGetRemappedRows of GPU 1", 3, "Not Supported"),)
    some = only(row_remap(FakeHost(tmp_path, GPU_JOB, snapshot=changed(4, unread=without))))
    assert (some.severity, some.summary) == (
        "ok",
        "no bad rows of memory (GPU 1, not looked at: Not Supported)",
    )
    none = Snapshot(tuple(dataclasses.replace(gpu, unread=without) for gpu in gpus(2).gpus))
    finding = only(row_remap(FakeHost(tmp_path, GPU_JOB, snapshot=none)))
    assert (finding.severity, finding.summary) == (
        "skipped",
        "row remapping: not supported by GPUs 0-1 (Not Supported)",
    )


def test_a_lost_gpu_is_the_matter_of_one_check_alone(tmp_path: Path) -> None:
    lost = changed(8, failure=Failure("x", 15, "GPU is lost"))
    loud = [
        finding.code
        for check in GPU_CHECKS
        for finding in check.function(FakeHost(tmp_path, GPU_JOB, snapshot=lost))
        if finding.severity not in ("ok", "note", "skipped") and finding.code != "SL120"
    ]
    assert loud == ["SL108"]


def test_a_gpu_that_nvml_cannot_name_is_named_by_the_kernel_module(tmp_path: Path) -> None:
    folder = "/proc/driver/nvidia/gpus"
    known = {f"{folder}/{gpu.address}/information": "Model: H100\n" for gpu in gpus(8).gpus}
    known[f"{folder}/0000:11:00.0/information"] = "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-1234\n"
    write(tmp_path, known)
    nameless = gpus(8, g1=Gpu(1, failure=Failure("nvmlDeviceGetHandleByIndex of GPU 1", 15, "GPU is lost")))
    assert only(driver(FakeHost(tmp_path, GPU_JOB, snapshot=nameless))).where == "GPU 1 (GPU-1234, 0000:11:00.0)"
    assert only(driver(FakeHost(tmp_path / "no", GPU_JOB, snapshot=nameless))).where == "GPU 1"


def test_one_rank_may_use_a_mig_instance(tmp_path: Path) -> None:
    one = FakeHost(
        tmp_path, Job(nproc=1, uses_gpu=True), snapshot=gpus(1, g0=Gpu(0, "GPU-0", mig=True, mig_pending=True))
    )
    assert only(mig(one)).severity == "ok"


def test_the_margin_stands_in_for_a_threshold(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, GPU_JOB, snapshot=changed(2, temperature=80, margin=2))
    finding = only(temperature(host))
    assert (finding.severity, finding.because) == (
        "warning",
        ("80 C, 2 C below the temperature at which its clocks are cut",),
    )
    host.snapshot = changed(2, temperature=84, slowdown_at=90)
    assert only(temperature(host)).severity == "ok"


@pytest.mark.parametrize(
    ("margin", "severity", "says"),
    [
        (53, "ok", ""),
        (3, "warning", "34 C, 3 C below the temperature at which its clocks are cut"),
        (-4, "error", "34 C, and a margin of -4 C to where its clocks are cut (nvmlDeviceGetMarginTemperature)"),
    ],
)
def test_the_worse_of_margin_and_threshold_counts(tmp_path: Path, margin: int, severity: str, says: str) -> None:
    snapshot = changed(2, temperature=34, slowdown_at=87, margin=margin)
    finding = only(temperature(FakeHost(tmp_path, GPU_JOB, snapshot=snapshot)))
    assert (finding.severity, finding.because) == (severity, (says,) if says else ())


def cold(*links: Link, name: str = "NVIDIA H100 80GB HBM3", count: int = 2) -> Snapshot:
    return Snapshot(tuple(dataclasses.replace(gpu, links=links, name=name) for gpu in gpus(count).gpus))


def test_links_that_are_all_down_are_a_fault_for_several_gpus_alone(tmp_path: Path) -> None:
    down = (Link(False),) * 18
    finding = only(nvlink(FakeHost(tmp_path, GPU_JOB, snapshot=cold(*down))))
    assert (finding.severity, finding.summary) == ("warning", "GPUs 0-1: all 18 NVLinks are down")
    one = only(nvlink(FakeHost(tmp_path, Job(nproc=1, uses_gpu=True), snapshot=cold(*down))))
    assert (one.severity, one.summary) == ("skipped", "no NVLink is active, and one GPU needs none")


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "NVIDIA A100 80GB PCIe", "NVIDIA H200 NVL", "NVIDIA A40"])
def test_boards_without_a_bridge_are_a_note(tmp_path: Path, name: str) -> None:
    finding = only(nvlink(FakeHost(tmp_path, GPU_JOB, snapshot=cold(Link(False), name=name))))
    assert finding.severity == "note"
    assert "bridge" in finding.because[0]


def test_the_same_links_on_all_gpus_are_by_design(tmp_path: Path) -> None:
    links = (Link(False),) * 6 + (Link(True, "switch"),) * 12
    finding = only(nvlink(FakeHost(tmp_path, GPU_JOB, snapshot=cold(*links))))
    assert (finding.severity, finding.summary) == ("ok", "12 of 18 NVLinks are active on each GPU")


def test_bridges_between_some_gpus_are_no_fault(tmp_path: Path) -> None:
    bridged = [
        dataclasses.replace(gpu, links=(Link(True, "gpu", f"0000:{0x10 + (gpu.index ^ 1):02x}:00.0"),) * 4)
        if gpu.index < 2
        else dataclasses.replace(gpu, links=(Link(False),) * 4)
        for gpu in gpus(4).gpus
    ]
    pairs = tuple(Pair(a, b, 40, 0 if b == 1 else 5) for a in range(4) for b in range(a + 1, 4))
    host = FakeHost(tmp_path, GPU_JOB, snapshot=Snapshot(tuple(bridged), pairs=pairs))
    assert only(nvlink(host)).severity == "ok"
    assert only(p2p(host)).summary == "GPUs reach one another over NVLink"
    cut = tuple(dataclasses.replace(pair, p2p=5) for pair in pairs)
    broken = FakeHost(tmp_path, GPU_JOB, snapshot=Snapshot(tuple(bridged), pairs=cut))
    finding = only(p2p(broken))
    assert (finding.severity, finding.summary[:9]) == ("error", "GPUs 0-1:")


def test_memory_is_compared_between_gpus_of_the_same_ecc_mode(tmp_path: Path) -> None:
    less = changed(4, memory_total=75 * GIB, ecc=True)
    assert only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=less))).severity == "ok"
    assert only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=changed(4, memory_total=75 * GIB)))).severity == "warning"


def test_the_odd_gpu_is_named_only_where_most_are_of_one_kind(tmp_path: Path) -> None:
    one = only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=changed(4, name="A100"))))
    assert (one.summary, one.because) == ("GPU 1: not like the other GPUs", ("A100; all others: H100",))
    two = only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=changed(2, name="A100"))))
    assert (two.severity, two.summary) == ("warning", "GPUs 0-1: not like one another")
    assert two.because == ("GPU 0: H100", "GPU 1: A100")
    assert "CUDA_VISIBLE_DEVICES" in two.remedy
    less = only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=changed(2, memory_total=40 * GIB))))
    assert less.because == ("GPU 0: 80 GiB of memory", "GPU 1: 40 GiB of memory")
    assert only(alike(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(1)))).severity == "skipped"


@pytest.mark.parametrize(
    ("environ", "links", "nodes", "names"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "0", "CUDA_PROFILE": ""}, 0, 1, []),
        (
            {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_INJECTION64_PATH": "/x.so"},
            0,
            1,
            ["CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"],
        ),
        ({"NCCL_P2P_DISABLE": "1"}, 0, 1, []),
        ({"NCCL_P2P_DISABLE": "1"}, 4, 1, ["NCCL_P2P_DISABLE"]),
        ({"NCCL_IB_DISABLE": "1"}, 4, 1, []),
        ({"NCCL_IB_DISABLE": "1"}, 4, 2, ["NCCL_IB_DISABLE"]),
    ],
)
def test_variables_count_where_they_do_harm(
    tmp_path: Path, environ: dict[str, str], links: int, nodes: int, names: list[str]
) -> None:
    write(tmp_path, {"/sys/class/infiniband/mlx5_0/x": ""})
    host = FakeHost(
        tmp_path,
        Job(nproc=2, max_nodes=nodes, uses_gpu=True),
        environ=environ,
        snapshot=changed(2, links=(Link(True, "switch"),) * links),
    )
    found = [finding.where.rpartition(" ")[2] for finding in debug_variables(host) if finding.severity == "warning"]
    assert sorted(found) == names

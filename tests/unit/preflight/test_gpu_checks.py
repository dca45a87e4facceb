from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import GIB, NO_DRIVER, FakeHost, gpus, only, write

from safelaunch.model import Job
from safelaunch.preflight.gpu.count import count
from safelaunch.preflight.gpu.driver import driver
from safelaunch.preflight.gpu.occupied import occupied
from safelaunch.preflight.machine.nvml import Failure, Gpu, GpuProcess, Snapshot

CPU_JOB = Job(nproc=8)
GPU_JOB = Job(nproc=8, uses_gpu=True)
MISMATCH = Snapshot(failure=Failure("nvmlInit", 18, "Driver/library version mismatch"))
STUCK = Snapshot(stuck_in="nvmlDeviceGetMemoryInfo of GPU 2", stuck_gpus=(2,), waited_s=10.0, asked=0)


def test_a_machine_without_a_driver_is_fine_for_a_cpu_job_only(tmp_path: Path) -> None:
    assert only(driver(FakeHost(tmp_path, CPU_JOB))).severity == "ok"
    missing = only(driver(FakeHost(tmp_path, GPU_JOB)))
    assert missing.severity == "error"
    assert "--gpus all" in missing.remedy


def test_amd_is_unchecked_and_not_refused(tmp_path: Path) -> None:
    write(tmp_path, {"/dev/kfd": ""})
    assert only(driver(FakeHost(tmp_path, GPU_JOB))).severity == "unchecked"


@pytest.mark.parametrize(("snapshot", "word"), [(MISMATCH, "reload"), (STUCK, "reboot")])
def test_a_sick_driver_refuses_gpu_jobs_alone(tmp_path: Path, snapshot: Snapshot, word: str) -> None:
    finding = only(driver(FakeHost(tmp_path, GPU_JOB, snapshot=snapshot)))
    assert finding.severity == "error"
    assert word in finding.remedy
    assert only(driver(FakeHost(tmp_path, CPU_JOB, snapshot=snapshot))).severity == "warning"
    assert only(count(FakeHost(tmp_path, GPU_JOB, snapshot=snapshot))).severity == "unchecked"


def test_the_call_that_hangs_is_named(tmp_path: Path) -> None:
    finding = only(driver(FakeHost(tmp_path, GPU_JOB, snapshot=STUCK)))
    assert "nvmlDeviceGetMemoryInfo of GPU 2" in finding.because[0]


def test_a_lost_gpu_refuses_the_job_that_would_use_it(tmp_path: Path) -> None:
    lost = gpus(8, g7=Gpu(7, failure=Failure("nvmlDeviceGetHandleByIndex of GPU 7", 15, "GPU is lost")))
    assert only(driver(FakeHost(tmp_path, GPU_JOB, snapshot=lost))).severity == "error"
    smaller = FakeHost(tmp_path, Job(nproc=4, uses_gpu=True), snapshot=lost)
    assert only(driver(smaller)).severity == "warning"


def test_fewer_gpus_than_ranks(tmp_path: Path) -> None:
    write(tmp_path, {f"/sys/bus/pci/devices/{i}/vendor": "0x10de\n" for i in range(8)})
    write(tmp_path, {f"/sys/bus/pci/devices/{i}/class": "0x030200\n" for i in range(8)})
    finding = only(count(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(7))))
    assert finding.summary == "8 ranks asked for, 7 GPUs visible"
    assert "8 NVIDIA GPUs are on the PCI bus" in finding.because[-1]
    assert "--nproc-per-node 7" in finding.remedy


def test_gpus_hidden_by_the_variable(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8), environ={"CUDA_VISIBLE_DEVICES": "0,9,1"})
    finding = only(count(host))
    assert finding.summary == "8 ranks asked for, 1 GPU visible"
    assert "CUDA_VISIBLE_DEVICES='0,9,1'" in finding.because[1]


def test_a_cpu_job_needs_no_gpus_and_mig_is_left_to_its_check(tmp_path: Path) -> None:
    assert only(count(FakeHost(tmp_path, CPU_JOB, snapshot=gpus(1)))).severity == "ok"
    mig = gpus(8, g0=Gpu(0, "GPU-00000000", mig=True))
    assert "SL114" in only(count(FakeHost(tmp_path, GPU_JOB, snapshot=mig))).summary


def busy(share: float) -> Gpu:
    return Gpu(0, "GPU-00000000", "H100", 80 * GIB, int(80 * GIB * share), processes=(GpuProcess(41, 4 * GIB),))


@pytest.mark.parametrize(("share", "severity"), [(0.04, "ok"), (0.1, "warning"), (0.5, "error")])
def test_memory_in_use(tmp_path: Path, share: float, severity: str) -> None:
    assert only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(share))))).severity == severity


def test_gpus_that_the_job_will_not_use_may_be_busy(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, Job(nproc=1, uses_gpu=True), snapshot=gpus(2, g0=busy(0.9)))
    host.environ["CUDA_VISIBLE_DEVICES"] = "1"
    assert only(occupied(host)).severity == "ok"


def process_files(pid: int) -> dict[str, str]:
    return {
        "/proc/uptime": "10000.00 1.0\n",
        f"/proc/{pid}/stat": f"{pid} (py (x) thon) S 1 {pid} {pid} " + "0 " * 15 + "640000 0 0\n",
        f"/proc/{pid}/status": "Name:\tpython\nUid:\t0\t0\t0\t0\n",
        f"/proc/{pid}/cmdline": "python\0train.py\0",
    }


def test_the_holder_is_named_with_a_kill_line_on_the_host_itself(tmp_path: Path) -> None:
    write(tmp_path, process_files(41))
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    finding = only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(0.5)))))
    assert finding.because == ("pid 41 (root, 1 h old): python train.py, 4 GiB",)
    assert "`kill 41`" in finding.remedy


def test_a_process_of_the_same_number_in_a_container_is_not_accused(tmp_path: Path) -> None:
    write(tmp_path, process_files(41))
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    finding = only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(0.5)))))
    assert finding.because == ("pid 41 of the host, not visible from here, 4 GiB",)
    assert "kill" not in finding.remedy


def test_no_driver_leaves_nothing_to_look_for(tmp_path: Path) -> None:
    assert only(occupied(FakeHost(tmp_path, CPU_JOB, snapshot=NO_DRIVER))).severity == "ok"

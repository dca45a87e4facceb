from __future__ import annotations

from collections.abc import Callable
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
    assert only(driver(FakeHost(tmp_path, CPU_JOB))).severity == "skipped"
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
    assert only(count(FakeHost(tmp_path, CPU_JOB, snapshot=gpus(1)))).severity == "skipped"
    mig = gpus(8, g0=Gpu(0, "GPU-00000000", mig=True))
    assert "SL114" in only(count(FakeHost(tmp_path, GPU_JOB, snapshot=mig))).summary


def busy(share: float) -> Gpu:
    return Gpu(0, "GPU-00000000", "H100", 80 * GIB, int(80 * GIB * share), processes=(GpuProcess(41, 4 * GIB),))


@pytest.mark.parametrize(("share", "severity"), [(0.04, "note"), (0.1, "warning"), (0.5, "error")])
def test_memory_in_use(tmp_path: Path, share: float, severity: str) -> None:
    assert only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(share))))).severity == severity


def geforce(used: float, *processes: GpuProcess, display: bool = True) -> Gpu:
    """8 GiB, of which so many are in use."""
    return Gpu(0, "GPU-00000000", "GeForce", 8 * GIB, int(used * GIB), processes=processes, display=display)


@pytest.mark.parametrize(("used", "severity"), [(0.3, "ok"), (2.6, "warning"), (7, "warning")])
def test_a_desktop_is_a_warning_at_most(tmp_path: Path, used: float, severity: str) -> None:
    finding = only(occupied(FakeHost(tmp_path, Job(nproc=1, uses_gpu=True), snapshot=gpus(1, g0=geforce(used)))))
    assert finding.severity == severity
    if severity == "warning":
        assert finding.because == (
            "NVML shows no compute process: it belongs to a desktop, or another container or user",
        )
        assert finding.remedy == "close programs of the desktop, or choose other GPUs with CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        (geforce(2.6, display=False), "error"),
        (geforce(6, GpuProcess(41, 4 * GIB)), "error"),
        (geforce(3, GpuProcess(41, GIB // 4)), "warning"),
        (geforce(3, GpuProcess(41, None)), "warning"),
    ],
)
def test_a_desktop_does_not_excuse_what_computes(tmp_path: Path, gpu: Gpu, severity: str) -> None:
    finding = only(occupied(FakeHost(tmp_path, Job(nproc=1, uses_gpu=True), snapshot=gpus(1, g0=gpu))))
    assert finding.severity == severity
    assert "desktop" not in finding.because[0]


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
    on_the_host_itself(tmp_path)
    finding = only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(0.5)))))
    assert finding.because == ("pid 41 (root, 1 h old): python train.py, 4 GiB",)
    assert "`kill 41`" in finding.remedy


def test_a_process_of_the_same_number_in_a_container_is_not_accused(tmp_path: Path) -> None:
    write(tmp_path, process_files(41))
    on_the_host_itself(tmp_path, namespace=4026532999)
    finding = only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=busy(0.5)))))
    assert finding.because == ("pid 41 of the host, not visible from here, 4 GiB",)
    assert "kill" not in finding.remedy


def test_no_driver_leaves_nothing_to_look_for(tmp_path: Path) -> None:
    assert only(occupied(FakeHost(tmp_path, CPU_JOB, snapshot=NO_DRIVER))).severity == "skipped"


def test_a_process_with_little_memory_is_named_and_no_fault(tmp_path: Path) -> None:
    write(tmp_path, process_files(41))
    on_the_host_itself(tmp_path)
    small = Gpu(0, "GPU-00000000", "H100", 80 * GIB, GIB // 2, processes=(GpuProcess(41, GIB // 4),))
    finding = only(occupied(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(8, g0=small))))
    assert finding.severity == "note"
    assert finding.summary == "GPU 0: a process is on it, with little memory (512 MiB in use)"
    assert finding.because == ("pid 41 (root, 1 h old): python train.py, 256 MiB",)


# ------------------------------------------------------------------------------------- GPUs that only the bus shows


def on_the_host_itself(root: Path, namespace: int = 4026531836) -> None:
    (root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/ns/pid").symlink_to(f"pid:[{namespace}]")


def on_the_bus(root: Path, count: int, driver: str = "nvidia", kind: str = "0x030200", first: int = 0) -> None:
    """PCI devices at the addresses of `gpus`, bound to a kernel driver."""
    for number in range(first, first + count):
        folder = f"sys/bus/pci/devices/0000:{0x10 + number:02x}:00.0"
        write(root, {f"{folder}/vendor": "0x10de\n", f"{folder}/class": f"{kind}\n"})
        if driver:
            (root / folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


FOUR = Job(nproc=4, uses_gpu=True)


def test_a_gpu_that_fell_off_the_bus_is_a_fault_though_there_are_enough(tmp_path: Path) -> None:
    on_the_host_itself(tmp_path)
    on_the_bus(tmp_path, 8)
    finding = only(count(FakeHost(tmp_path, FOUR, snapshot=gpus(7))))
    assert (finding.severity, finding.where) == ("error", "GPU 0000:17:00.0")
    assert finding.summary == "1 GPU fell off the bus: 8 have the driver, 7 answer"
    assert "reboot" in finding.remedy
    assert only(count(FakeHost(tmp_path, CPU_JOB, snapshot=gpus(7)))).severity == "warning"
    few = only(count(FakeHost(tmp_path, GPU_JOB, snapshot=gpus(7))))
    assert (few.severity, few.summary, few.where) == (
        "error",
        "8 ranks asked for, 7 GPUs visible",
        "GPU 0000:17:00.0",
    )
    assert "reboot" in few.remedy
    assert only(count(FakeHost(tmp_path, FOUR, snapshot=gpus(8)))).severity == "ok"


def test_fallen_gpus_are_counted_where_nvml_tells_no_addresses(tmp_path: Path) -> None:
    on_the_host_itself(tmp_path)
    on_the_bus(tmp_path, 8)
    nameless = Snapshot(tuple(Gpu(index, f"GPU-{index}") for index in range(6)))
    finding = only(count(FakeHost(tmp_path, FOUR, snapshot=nameless)))
    assert (finding.summary[:10], finding.where) == ("2 GPUs fel", "")


def kept_for_a_virtual_machine(root: Path) -> None:
    on_the_bus(root, 1, driver="vfio-pci", first=7)


def made_by_a_gpu_for_virtual_machines(root: Path) -> None:
    on_the_bus(root, 1, first=7)
    (root / "sys/bus/pci/devices/0000:17:00.0/physfn").symlink_to("../0000:10:00.0")


def kept_by_the_batch_system(root: Path) -> None:
    on_the_bus(root, 1, first=7)
    (root / "dev").mkdir()
    (root / "dev/nvidia7").symlink_to("not-to-be-opened")


def a_container_with_the_pids_of_the_host(root: Path) -> None:
    on_the_bus(root, 1, first=7)
    write(root, {f"/proc/driver/nvidia/gpus/0000:{0x10 + i:02x}:00.0/information": "" for i in range(7)})


@pytest.mark.parametrize(
    "machine",
    [
        kept_for_a_virtual_machine,
        made_by_a_gpu_for_virtual_machines,
        kept_by_the_batch_system,
        a_container_with_the_pids_of_the_host,
    ],
)
def test_a_gpu_that_is_kept_away_has_not_fallen(tmp_path: Path, machine: Callable[[Path], None]) -> None:
    on_the_host_itself(tmp_path)
    on_the_bus(tmp_path, 7)
    machine(tmp_path)
    assert only(count(FakeHost(tmp_path, FOUR, snapshot=gpus(7)))).severity == "ok"
    assert only(count(FakeHost(tmp_path, CPU_JOB, snapshot=gpus(7)))).severity == "skipped"


def test_a_container_has_fewer_gpus_than_the_bus(tmp_path: Path) -> None:
    on_the_host_itself(tmp_path, namespace=4026532999)
    on_the_bus(tmp_path, 8)
    assert only(count(FakeHost(tmp_path, FOUR, snapshot=gpus(4)))).severity == "ok"
    assert only(driver(FakeHost(tmp_path, CPU_JOB))).severity == "skipped"


def test_gpus_of_a_data_centre_without_a_driver_are_told_to_a_cpu_job(tmp_path: Path) -> None:
    on_the_host_itself(tmp_path)
    on_the_bus(tmp_path, 2, driver="")
    finding = only(driver(FakeHost(tmp_path, CPU_JOB)))
    assert (finding.severity, finding.summary) == (
        "warning",
        "2 NVIDIA GPUs are on the PCI bus and no driver answers",
    )
    assert finding.where == "GPU 0000:10:00.0; GPU 0000:11:00.0"
    assert only(driver(FakeHost(tmp_path, GPU_JOB))).severity == "error"


@pytest.mark.parametrize(("bound_to", "kind"), [("", "0x030000"), ("vfio-pci", "0x030200")])
def test_a_graphics_card_or_one_of_a_virtual_machine_needs_no_driver(tmp_path: Path, bound_to: str, kind: str) -> None:
    on_the_host_itself(tmp_path)
    on_the_bus(tmp_path, 2, driver=bound_to, kind=kind)
    assert only(driver(FakeHost(tmp_path, CPU_JOB))).severity == "skipped"

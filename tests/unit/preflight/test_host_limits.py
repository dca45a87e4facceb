"""Processes, CPUs and clocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost, only, write

from safelaunch.model import Finding, Job
from safelaunch.preflight.node.clocks import CLOCK, CPUS, clocksource, governor
from safelaunch.preflight.node.cpus import cpus
from safelaunch.preflight.node.openmp import threads_of_a_rank
from safelaunch.preflight.node.pids import pids

V2 = "/sys/fs/cgroup/job"
NODE = {
    "/proc/self/cgroup": "0::/job\n",
    "/proc/loadavg": "0.1 0.1 0.1 2/400 9999\n",
    "/proc/sys/kernel/threads-max": "500000\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
}


def room(root: Path, files: dict[str, str], *, uid: int = 0, processes: int = 1 << 62, **environ: str) -> Finding:
    write(root, {**NODE, **files})
    host = FakeHost(root, Job(nproc=8), processes=processes, environ=environ)
    host.uid = uid
    return only(pids(host))


def group(limit: str, used: int) -> dict[str, str]:
    return {f"{V2}/pids.max": f"{limit}\n", f"{V2}/pids.current": f"{used}\n"}


def test_a_node_without_limits_has_room(tmp_path: Path) -> None:
    assert room(tmp_path, group("max", 100)).severity == "ok"


@pytest.mark.parametrize(("limit", "severity"), [(107, "error"), (120, "warning"), (4096, "ok")])
def test_the_limit_of_a_container_is_held_against_what_ranks_need(tmp_path: Path, limit: int, severity: str) -> None:
    finding = room(tmp_path, group(str(limit), 100))
    assert finding.severity == severity
    if severity != "ok":
        assert finding.because[0] == f"{V2}/pids.max is {limit}, and 100 are in use"
        assert "--pids-limit" in finding.remedy


def test_threads_of_a_users_processes_count_against_his_limit_and_root_has_none(tmp_path: Path) -> None:
    mine = {f"/proc/{pid}/status": "Uid:\t1000\t1000\nThreads:\t300\n" for pid in (10, 11)}
    files = {**mine, "/proc/12/status": "Uid:\t1001\t1001\nThreads:\t9000\n"}
    finding = room(tmp_path, files, uid=1000, processes=607)
    assert finding.severity == "error"
    assert finding.because[0] == "RLIMIT_NPROC (ulimit -u) is 607, and 600 are in use"
    assert room(tmp_path, files, uid=0, processes=607).severity == "ok"


def test_a_node_nearly_full_is_a_warning_though_the_ranks_fit(tmp_path: Path) -> None:
    finding = room(tmp_path, {"/proc/loadavg": "0.1 0.1 0.1 2/420000 9999\n"})
    assert finding.severity == "warning"
    assert finding.summary == "420000 of 500000 processes and threads are in use"
    assert "kernel.threads-max" in finding.remedy


def test_many_omp_threads_need_more_room(tmp_path: Path) -> None:
    assert room(tmp_path, group("2000", 100)).severity == "ok"
    assert room(tmp_path, group("2000", 100), OMP_NUM_THREADS="200").severity == "warning"


def test_omp_threads_that_openmp_does_not_take_are_one_for_each_cpu(tmp_path: Path) -> None:
    def threads(**environ: str) -> int:
        return threads_of_a_rank(FakeHost(tmp_path, Job(nproc=8), cpus=64, environ=environ))

    assert [threads(OMP_NUM_THREADS=text) for text in ("16", "4,2", "0", "many", "")] == [16, 4, 64, 64, 64]
    assert threads() == 1  # torchrun sets it
    assert threads_of_a_rank(FakeHost(tmp_path, Job(nproc=1), cpus=64)) == 64


# ------------------------------------------------------------------------------------------------- CPUs


def on(root: Path, count: int, job: Job, files: dict[str, str] | None = None, **environ: str) -> Finding:
    write(root, {"/proc/self/cgroup": "0::/job\n", **(files or {})})
    return only(cpus(FakeHost(root, job, cpus=count, environ=environ)))


def test_threads_by_a_variable_that_outnumber_the_cpus_are_a_warning(tmp_path: Path) -> None:
    finding = on(tmp_path, 32, Job(nproc=8), OMP_NUM_THREADS="16")
    assert finding.severity == "warning"
    assert finding.summary == "8 ranks of 16 threads on 32 CPUs"
    assert finding.remedy == "set OMP_NUM_THREADS=4"
    assert on(tmp_path, 32, Job(nproc=8), OMP_NUM_THREADS="4").severity == "ok"
    assert on(tmp_path, 32, Job(nproc=8), OMP_NUM_THREADS="4,2").severity == "ok"


def test_eight_gpus_on_the_one_cpu_that_slurm_gives_by_default(tmp_path: Path) -> None:
    finding = on(tmp_path, 1, Job(nproc=8, uses_gpu=True), SLURM_JOB_ID="7")
    assert finding.severity == "warning"
    assert "8 ranks with a GPU each on 1 CPU" in finding.summary
    assert "--cpus-per-task" in finding.remedy


def test_ranks_without_gpu_may_outnumber_cpus(tmp_path: Path) -> None:
    assert on(tmp_path, 2, Job(nproc=4)).severity == "ok"
    assert on(tmp_path, 2, Job(nproc=16)).severity == "note"


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/job\n", {f"{V2}/cpu.max": "200000 100000\n"}),
        (
            "3:cpu,cpuacct:/job\n",
            {
                "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "200000\n",
                "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            },
        ),
    ],
)
def test_a_quota_counts_as_its_number_of_cpus(tmp_path: Path, cgroup: str, files: dict[str, str]) -> None:
    finding = on(tmp_path, 64, Job(nproc=4, uses_gpu=True), {"/proc/self/cgroup": cgroup, **files})
    assert finding.severity == "warning"
    assert "on 2 CPUs" in finding.summary
    assert "allows 2, and 64 are there" in finding.because[0]


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    for text in ("max 100000\n", "-1 100000\n"):
        assert on(tmp_path, 64, Job(nproc=8, uses_gpu=True), {f"{V2}/cpu.max": text}).severity == "ok"


# ----------------------------------------------------------------------------------------------- clocks


def governed(root: Path, driver: str, governors: list[str], *, gpu: bool = True) -> Finding:
    for index, name in enumerate(governors):
        folder = f"{CPUS}/cpu{index}/cpufreq"
        write(root, {f"{folder}/scaling_driver": f"{driver}\n", f"{folder}/scaling_governor": f"{name}\n"})
    return only(governor(FakeHost(root, Job(nproc=1, uses_gpu=gpu))))


def test_powersave_is_a_fault_only_where_it_means_the_lowest_frequency(tmp_path: Path) -> None:
    finding = governed(tmp_path / "a", "acpi-cpufreq", ["performance", "powersave"])
    assert finding.severity == "warning"
    assert "1 of 2 CPUs run at their lowest frequency" in finding.summary
    for driver in ("intel_pstate", "amd-pstate-epp"):
        assert governed(tmp_path / driver, driver, ["powersave"]).severity == "ok"
    assert governed(tmp_path / "b", "acpi-cpufreq", ["schedutil"]).severity == "ok"
    assert governed(tmp_path / "c", "acpi-cpufreq", ["powersave"], gpu=False).severity == "skipped"
    assert governed(tmp_path / "vm", "", []).severity == "skipped"


@pytest.mark.parametrize(
    ("current", "severity"),
    [("tsc", "ok"), ("kvm-clock", "ok"), ("arch_sys_counter", "ok"), ("hpet", "warning"), ("acpi_pm", "warning")],
)
def test_slow_clocks(tmp_path: Path, current: str, severity: str) -> None:
    write(tmp_path, {f"{CLOCK}/current_clocksource": f"{current}\n", f"{CLOCK}/available_clocksource": "tsc hpet\n"})
    finding = only(clocksource(FakeHost(tmp_path)))
    assert finding.severity == severity
    assert "echo tsc" in finding.remedy or severity == "ok"


def test_a_machine_that_shows_no_clock_source_is_fine(tmp_path: Path) -> None:
    assert only(clocksource(FakeHost(tmp_path))).severity == "skipped"

from __future__ import annotations

from pathlib import Path

from fake_host import FakeHost, only, write

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Wanted
from safelaunch.preflight.node.limits import memory

MIB = 1 << 20
GIB = 1 << 30
MACHINE = {"/proc/meminfo": "MemTotal:       67108864 kB\nMemAvailable:   60000000 kB\nHugePages_Total:       0\n"}
V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"


def v2(folder: str, limit: str, used: int = 0, cache: int = 0) -> dict[str, str]:
    return {
        f"{V2}{folder}/memory.max": f"{limit}\n",
        f"{V2}{folder}/memory.current": f"{used}\n",
        f"{V2}{folder}/memory.stat": f"anon 1\ninactive_file {cache}\n",
    }


def v1(folder: str, limit: int, used: int = 0) -> dict[str, str]:
    return {
        f"{V1}{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{V1}{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{V1}{folder}/memory.stat": "total_inactive_file 0\n",
    }


def host_of(root: Path, nproc: int, *files: dict[str, str]) -> FakeHost:
    for group in (MACHINE, *files):
        write(root, group)
    return FakeHost(root, Job(nproc=nproc))


def test_no_limit_but_the_machine(tmp_path: Path) -> None:
    host = host_of(tmp_path, 8, {"/proc/self/cgroup": "0::/user.slice\n"}, v2("/user.slice", "max"))
    finding = only(memory(host))
    assert finding.severity == "ok"
    assert "57.2 GiB" in finding.summary


def test_a_version_2_limit_that_is_tight_for_the_ranks(tmp_path: Path) -> None:
    host = host_of(tmp_path, 8, {"/proc/self/cgroup": "0::/\n"}, v2("", str(GIB)))
    finding = only(memory(host))
    assert finding.severity == "warning"
    assert "/sys/fs/cgroup/memory.max is 1 GiB" in finding.because[0]


def test_a_limit_below_what_a_profile_demands_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {**MACHINE, "/proc/self/cgroup": "0::/\n", **v2("", str(GIB))})
    for least, severity in ((100 * MIB, "warning"), (250 * MIB, "error")):
        wanted = Wanted(thresholds={"memory_least": least})
        assert only(memory(FakeHost(tmp_path, Job(nproc=8), wanted=wanted))).severity == severity


def test_a_limit_above_our_own_group_holds_too(tmp_path: Path) -> None:
    groups = {"/proc/self/cgroup": "0::/job_7/step_0\n"}
    host = host_of(tmp_path, 4, groups, v2("/job_7/step_0", "max"), v2("/job_7", str(GIB // 2)))
    finding = only(memory(host))
    assert finding.severity == "warning"
    assert "job_7/memory.max" in finding.because[0]


def test_page_cache_counts_as_available(tmp_path: Path) -> None:
    groups = {"/proc/self/cgroup": "0::/job\n"}
    cached = host_of(tmp_path, 4, groups, v2("/job", str(8 * GIB), used=7 * GIB, cache=6 * GIB))
    assert only(memory(cached)).severity == "ok"
    used = host_of(tmp_path, 4, groups, v2("/job", str(8 * GIB), used=7 * GIB, cache=0))
    assert only(memory(used)).severity == "warning"


def test_version_1_with_its_number_for_no_limit(tmp_path: Path) -> None:
    groups = {"/proc/self/cgroup": "4:cpu,memory:/docker/abc\n1:name=systemd:/\n0::/\n"}
    free = host_of(tmp_path, 2, groups, v1("/docker/abc", 9223372036854771712))
    assert only(memory(free)).severity == "ok"
    tight = host_of(tmp_path, 2, groups, v1("/docker/abc", 400 * MIB))
    assert only(memory(tight)).severity == "warning"


def test_a_container_whose_group_path_is_not_mounted_has_its_limit_at_the_mount(tmp_path: Path) -> None:
    host = host_of(tmp_path, 2, {"/proc/self/cgroup": "4:memory:/kubepods/pod1\n"}, v1("", 300 * MIB))
    assert only(memory(host)).severity == "warning"


def test_what_cannot_be_read_is_no_pass(tmp_path: Path) -> None:
    assert only(memory(FakeHost(tmp_path))).severity == "unchecked"

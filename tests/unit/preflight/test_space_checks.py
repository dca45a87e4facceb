from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fake_host import FakeHost, only, volume, write

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.node.disk import disk
from safelaunch.preflight.node.limits import shared_memory

MIB = 1 << 20
GIB = 1 << 30


def test_the_default_of_a_container_is_too_small_for_a_rank(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, Job(nproc=8), volumes={"/dev/shm": volume(64 * MIB, total=64 * MIB)})
    finding = only(shared_memory(host))
    assert finding.severity == "warning"
    assert "the default of a container" in finding.because[0]
    assert "--shm-size=1g" in finding.remedy


def test_a_full_shared_memory_is_not_answered_with_a_larger_one(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, volumes={"/dev/shm": volume(0, total=64 * GIB)})
    finding = only(shared_memory(host))
    assert finding.severity == "warning"
    assert "dead programs" in finding.remedy


def test_shared_memory_that_is_missing_costs_loaders_and_plenty_is_fine(tmp_path: Path) -> None:
    missing = only(shared_memory(FakeHost(tmp_path)))
    assert missing.severity == "warning"
    assert "DataLoader workers and NCCL fail" in missing.summary
    roomy = FakeHost(tmp_path, volumes={"/dev/shm": volume(GIB)})
    assert only(shared_memory(roomy)).severity == "ok"


def test_a_profile_sets_the_threshold_of_shared_memory(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, volumes={"/dev/shm": volume(GIB)}, wanted=Wanted(shm=2 * GIB))
    assert only(shared_memory(host)).severity == "warning"


@pytest.mark.parametrize(
    ("found", "severity"),
    [
        (volume(10 * GIB), "ok"),
        (volume(500 * MIB), "warning"),
        (volume(0), "warning"),
        (volume(10 * GIB, free_inodes=5000), "warning"),
        (volume(10 * GIB, free_inodes=3), "warning"),
        (volume(10 * GIB, inodes=0, free_inodes=0), "ok"),
    ],
)
def test_disk(tmp_path: Path, found: object, severity: str) -> None:
    host = FakeHost(tmp_path, Job(nproc=1, run_dir="/data/runs"), volumes={"/": found})
    assert only(disk(host)).severity == severity


def test_the_file_system_of_a_run_directory_to_be_made_is_that_of_what_exists_above_it(tmp_path: Path) -> None:
    (tmp_path / "data/team").mkdir(parents=True)
    volumes = {"/": volume(10 * GIB), "/data/team": volume(0)}
    host = FakeHost(tmp_path, Job(nproc=1, run_dir="/data/team/a/b"), volumes=volumes)
    assert "0 B free at /data/team" in only(disk(host)).summary


def test_less_than_the_profile_demands_is_an_error(tmp_path: Path) -> None:
    job = Job(nproc=1, run_dir="/data")
    host = FakeHost(tmp_path, job, volumes={"/": volume(10 * GIB)}, wanted=Wanted(free_disk=100 * GIB))
    assert only(disk(host)).severity == "error"


def test_a_file_system_that_cannot_be_looked_at_is_no_pass(tmp_path: Path) -> None:
    assert only(disk(FakeHost(tmp_path, Job(nproc=1, run_dir="/data")))).severity == "unchecked"


def mounted(*mounts: tuple[str, str, str]) -> dict[str, str]:
    """/proc/self/mountinfo of (device, mount point, type)."""
    lines = [
        f"{n} 1 {device} / {point} rw - {kind} /dev/{device} rw\n" for n, (device, point, kind) in enumerate(mounts)
    ]
    return {"/proc/self/mountinfo": "".join(lines)}


def test_one_full_file_system_is_one_finding_for_all_that_lies_there(tmp_path: Path) -> None:
    write(tmp_path, {**mounted(("8:1", "/", "ext4"), ("8:1", "/data", "ext4")), "/tmp/x": "", "/data/x": ""})
    full = volume(10 * MIB)
    finding = only(disk(FakeHost(tmp_path, Job(nproc=1, run_dir="/data"), volumes={"/": full, "/data": full})))
    assert finding.severity == "warning"
    assert "the run directory and temporary files lie there" in finding.because[0]
    assert finding.where == "/dev/8:1 (ext4) on /data"


def test_a_full_tmp_beside_a_run_directory_with_room_is_a_finding_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, {**mounted(("8:1", "/", "ext4"), ("0:9", "/scratch", "tmpfs")), "/scratch/tmp/x": ""})
    volumes = {"/": volume(10 * GIB), "/scratch": volume(2 * MIB)}
    job = Job(nproc=1, run_dir="/data")
    finding = only(disk(FakeHost(tmp_path, job, volumes=volumes, environ={"TMPDIR": "/scratch/tmp"})))
    assert finding.severity == "warning"
    assert "TMPDIR" in finding.remedy
    assert "--run-dir" not in finding.remedy


def test_a_small_tmp_in_memory_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, {**mounted(("8:1", "/", "ext4"), ("0:9", "/tmp", "tmpfs")), "/tmp/x": ""})
    volumes = {"/": volume(10 * GIB), "/tmp": volume(200 * MIB)}
    finding = only(disk(FakeHost(tmp_path, Job(nproc=1, run_dir="/data"), volumes=volumes)))
    assert (finding.severity, finding.summary) == ("ok", "10 GiB free at /, 200 MiB free at /tmp")


def test_a_run_directory_that_cannot_be_written_is_told_with_what_a_launch_does(tmp_path: Path) -> None:
    write(tmp_path, {"/data/x": "", "/tmp/x": ""})
    job = Job(nproc=1, run_dir="/data/new")
    host = FakeHost(tmp_path, job, volumes={"/": volume(10 * GIB)}, unwritable={"/data": errno.EROFS})
    finding = only(disk(host))
    assert finding.severity == "warning"
    assert "keeps its evidence in TMPDIR" in finding.because[0]
    assert finding.summary == "the run directory /data/new cannot be made in /data: Read-only file system (EROFS)"


def test_temporary_files_go_where_python_puts_them(tmp_path: Path) -> None:
    write(tmp_path, {"/tmp/x": "", "/var/tmp/x": ""})
    read_only = {"/tmp": errno.EROFS}
    host = FakeHost(tmp_path, Job(nproc=1), volumes={"/": volume(10 * GIB)}, unwritable=read_only)
    assert "at /var/tmp" in only(disk(host)).summary
    nowhere = {**read_only, "/var/tmp": errno.EROFS, "/": errno.EROFS}
    host = FakeHost(tmp_path, Job(nproc=1), volumes={"/": volume(10 * GIB)}, unwritable=nowhere)
    finding = only(disk(host))
    assert finding.severity == "warning"
    assert "TMPDIR" in finding.remedy


def test_a_real_directory_can_be_written_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    host = Host(Job(nproc=1, run_dir=str(tmp_path)))
    assert host.volume(str(tmp_path), write=True).unwritable == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_mount_point_with_an_odd_name_hides_no_full_disk(tmp_path: Path, end: str) -> None:
    """Any user can make one, with FUSE; the kernel escapes blanks and newlines there, and nothing else."""
    odd = ("0:99", f"/home/x/a{end}b - c", "fuse.x")
    write(tmp_path, {**mounted(("8:1", "/", "ext4"), odd), "/tmp/x": ""})
    finding = only(disk(FakeHost(tmp_path, Job(nproc=1), volumes={"/": volume(10 * MIB)})))
    assert finding.where == "/dev/8:1 (ext4) on /"

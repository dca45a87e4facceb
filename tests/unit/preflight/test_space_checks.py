from __future__ import annotations

from pathlib import Path

import pytest
from fake_host import FakeHost, only, volume

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Wanted
from safelaunch.preflight.node.limits import disk, shared_memory

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
    assert finding.severity == "error"
    assert "dead programs" in finding.remedy


def test_shared_memory_missing_is_an_error_and_plenty_is_fine(tmp_path: Path) -> None:
    assert only(shared_memory(FakeHost(tmp_path))).severity == "error"
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
        (volume(0), "error"),
        (volume(10 * GIB, free_inodes=5000), "warning"),
        (volume(10 * GIB, free_inodes=3), "error"),
        (volume(10 * GIB, inodes=0, free_inodes=0), "ok"),
    ],
)
def test_disk(tmp_path: Path, found: object, severity: str) -> None:
    host = FakeHost(tmp_path, Job(nproc=1, run_dir="/data/runs"), volumes={"/": found})
    assert only(disk(host)).severity == severity


def test_the_file_system_of_a_run_directory_to_be_made_is_that_of_what_exists_above_it(tmp_path: Path) -> None:
    (tmp_path / "data/team").mkdir(parents=True)
    host = FakeHost(tmp_path, Job(nproc=1, run_dir="/data/team/a/b"), volumes={"/data/team": volume(0)})
    assert "0 B free at /data/team" in only(disk(host)).summary


def test_less_than_the_profile_demands_is_an_error(tmp_path: Path) -> None:
    job = Job(nproc=1, run_dir="/data")
    host = FakeHost(tmp_path, job, volumes={"/": volume(10 * GIB)}, wanted=Wanted(free_disk=100 * GIB))
    assert only(disk(host)).severity == "error"


def test_a_file_system_that_cannot_be_looked_at_is_no_pass(tmp_path: Path) -> None:
    assert only(disk(FakeHost(tmp_path, Job(nproc=1, run_dir="/data")))).severity == "unchecked"

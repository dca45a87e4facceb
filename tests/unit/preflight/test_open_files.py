from __future__ import annotations

import resource
from pathlib import Path

import pytest
from fake_host import FakeHost, only

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Host, Wanted
from safelaunch.preflight.node.limits import least_files, needed_files, open_files, raise_open_files


def test_the_common_limit_of_1024_is_enough_for_eight_ranks(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, Job(nproc=8), file_limit=(1024, 4096))
    assert only(open_files(host)).severity == "ok"
    assert host.limit == (1024, 4096)


def test_many_peers_need_more_and_the_soft_limit_is_raised_to_just_that(tmp_path: Path) -> None:
    job = Job(nproc=8, max_nodes=64)
    host = FakeHost(tmp_path, job, file_limit=(1024, 1 << 20))
    finding = only(open_files(host))
    assert finding.severity == "note"
    assert f"from 1024 to {needed_files(job)}" in finding.summary
    assert host.limit == (needed_files(job), 1 << 20)


def test_a_hard_limit_below_the_estimate_is_a_warning_after_raising_what_can_be_raised(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, Job(nproc=2), file_limit=(256, 512))
    note, warning = open_files(host)
    assert (note.severity, warning.severity) == ("note", "warning")
    assert host.limit == (512, 512)
    assert "the hard limit is 512" in warning.because[0]


def test_no_limit_of_open_files_is_known_to_be_too_low(tmp_path: Path) -> None:
    finding = only(open_files(FakeHost(tmp_path, Job(nproc=2), file_limit=(64, 64))))
    assert finding.severity == "warning"
    assert f"up to {least_files(Job(nproc=2))} files for one process group" in finding.because[1]


def test_a_profile_can_ask_for_more_than_the_estimate(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, file_limit=(1024, 1 << 20), wanted=Wanted(nofile=65536))
    assert "to 65536" in only(open_files(host)).summary


def test_the_real_limit_of_this_process_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 300:
        pytest.skip("the hard limit here is too low to move below it")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        note = raise_open_files(Host(Job(nproc=1)), 300)
        assert note is not None
        assert note.severity == "note"
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, before[1])
        assert raise_open_files(Host(Job(nproc=1)), 300) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

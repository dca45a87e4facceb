"""When a node is new, and when its last pass still counts."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from fake_host import FakeHost, gpus, write

from safelaunch import user_files
from safelaunch.model import Finding, Job, PreflightReport, Severity
from safelaunch.preflight import CHECKS, node_history
from safelaunch.preflight.machine.nvml import Snapshot
from safelaunch.preflight.node_history import BOOT_ID, Record

DAY_S = 86400.0


GPU_JOB = Job(nproc=8, uses_gpu=True)


def look(folder: Path, *, boot: str = "first", snapshot: Snapshot | None = None, job: Job = GPU_JOB) -> Record:
    write(folder, {BOOT_ID: f"{boot}\n"})
    environ = {"XDG_CACHE_HOME": str(folder / "cache")}
    return node_history.read(FakeHost(folder, job, environ=environ, snapshot=snapshot or gpus(8)))


def report(**severities: Severity) -> PreflightReport:
    """All slow checks passed, but those that are named."""
    slow = [check for check in CHECKS if check.full_only]
    findings = tuple(
        Finding(code=check.code, severity=severities.get(check.code, "ok"), summary="", check=check.name)
        for check in slow
    )
    return PreflightReport(findings, "node-a", 3.0, full=True)


def test_a_node_is_new_until_it_has_passed(tmp_path: Path) -> None:
    assert look(tmp_path).due(DAY_S) == "this node has no full pass on record"
    look(tmp_path).passed(report())
    assert look(tmp_path).due(DAY_S) == ""


@pytest.mark.parametrize("severity", ["error", "unchecked"])
def test_what_failed_or_could_not_look_is_no_pass(tmp_path: Path, severity: Severity) -> None:
    look(tmp_path).passed(report(SL152=severity))
    assert look(tmp_path).due(DAY_S) == "this node has no full pass on record"
    look(tmp_path).passed(report(SL152="warning"))
    assert look(tmp_path).due(DAY_S) == ""


def test_a_report_of_quick_checks_alone_is_no_pass() -> None:
    assert not node_history.is_full_pass(
        PreflightReport((Finding(code="SL105", severity="ok", summary=""),), "node-a", 0.1)
    )


def test_a_pass_ages(tmp_path: Path) -> None:
    known = look(tmp_path).passed(report())
    assert known.known is not None
    passed_at = known.known.passed["node"]
    assert known.due(DAY_S, now=passed_at + DAY_S - 1) == ""
    assert known.due(DAY_S, now=passed_at + DAY_S) == "the last full pass is too old"
    assert known.due(DAY_S, now=passed_at - 60) == "the last full pass is too old"  # the clock was set back


def test_a_reboot_and_another_driver_make_it_new(tmp_path: Path) -> None:
    look(tmp_path).passed(report())
    assert "rebooted" in look(tmp_path, boot="second").due(DAY_S)
    upgraded = dataclasses.replace(gpus(8), driver="580.1")
    assert look(tmp_path, snapshot=upgraded).due(DAY_S) == (
        "the GPU driver was 570.1 at the last full pass and is 580.1"
    )


def test_only_the_gpus_that_took_part_have_passed(tmp_path: Path) -> None:
    look(tmp_path, job=Job(nproc=2)).passed(report())
    assert look(tmp_path).due(DAY_S) == "GPUs of this job have no full pass on record"
    look(tmp_path, job=Job(nproc=4, uses_gpu=True)).passed(report())
    assert look(tmp_path, job=Job(nproc=2, uses_gpu=True)).due(DAY_S) == ""
    assert look(tmp_path).due(DAY_S) == "GPUs of this job have no full pass on record"
    look(tmp_path).passed(report())
    look(tmp_path, job=Job(nproc=2)).passed(report())  # takes nothing away from the GPUs
    assert look(tmp_path).due(DAY_S) == ""


@pytest.mark.parametrize(("code", "due"), [("SL102", True), ("SL601", True), ("SL401", False), ("SL301", False)])
def test_a_run_that_casts_doubt_on_the_node_has_it_checked_again(tmp_path: Path, code: str, due: bool) -> None:
    look(tmp_path).passed(report())
    look(tmp_path).ended(code)
    assert bool(look(tmp_path).due(DAY_S)) == due
    look(tmp_path).passed(report())
    assert look(tmp_path).due(DAY_S) == ""


def test_a_good_run_takes_the_doubt_away_and_is_no_pass(tmp_path: Path) -> None:
    look(tmp_path).ended("SL601")
    assert look(tmp_path).due(DAY_S) == "the last run on this node ended with SL601"
    look(tmp_path).ended("")
    assert look(tmp_path).due(DAY_S) == "this node has no full pass on record"


def test_the_file_is_private(tmp_path: Path) -> None:
    path = Path(look(tmp_path).passed(report()).path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": 99}', '{"passed": 1}', '{"passed": {"node": "x"}}']
)
def test_a_file_that_cannot_be_read_is_no_record(tmp_path: Path, text: str) -> None:
    Path(look(tmp_path).passed(report()).path).write_text(text)
    assert look(tmp_path).due(DAY_S) == "this node has no full pass on record"


def test_what_somebody_else_wrote_does_not_count(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(look(tmp_path).passed(report()).path, 65534, 65534)
    assert look(tmp_path).due(DAY_S) == "this node has no full pass on record"


def test_a_folder_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_history, "ANSWER_S", 0.05)
    look(tmp_path).passed(report())
    answers = threading.Event()
    monkeypatch.setattr(user_files, "load", lambda path: answers.wait())  # noqa: ARG005
    blocked = look(tmp_path)
    answers.set()
    assert blocked.due(DAY_S) == f"no record can be kept: {tmp_path}/cache does not answer"
    assert blocked.passed(report()) == blocked.ended("SL601") == blocked


def test_without_a_place_for_it_every_run_is_the_first(tmp_path: Path) -> None:
    homeless = node_history.read(FakeHost(tmp_path))
    assert homeless.due(DAY_S) == homeless.passed(report()).due(DAY_S)
    assert "neither HOME nor XDG_CACHE_HOME" in homeless.due(DAY_S)
    (tmp_path / "file").touch()
    blocked = node_history.read(FakeHost(tmp_path, environ={"XDG_CACHE_HOME": str(tmp_path / "file")}))
    assert "no record can be kept: " in blocked.passed(report()).due(DAY_S)


def test_runs_that_end_at_the_same_time_leave_one_whole_file(tmp_path: Path) -> None:
    known = look(tmp_path)
    threads = [threading.Thread(target=known.passed, args=(report(),)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(Path(known.path).read_text())["schema_version"] == 1
    assert os.listdir(Path(known.path).parent) == [Path(known.path).name]

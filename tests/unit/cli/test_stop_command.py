"""`safelaunch stop`: which run it means, and what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelaunch.cli import stop
from safelaunch.model import SafelaunchError


def run_dir(path: Path, *files: str) -> Path:
    path.mkdir(parents=True)
    for name in ("run.json", *files):
        (path / name).write_text("{}")
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "safelaunch_runs"


def test_all_nodes_of_a_job_that_have_not_ended_are_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [run_dir(runs / "job" / name) for name in ("node-a", "node-b")]
    over = run_dir(runs / "job" / "node-c", "result.json")
    (nodes[1] / "stopping.json").write_text('{"call": 812}')

    assert stop.run(["job"]) == 0

    assert capsys.readouterr().out == "job stops at call 812 of should_stop(), on all ranks\n"
    assert all((node / "stop").stat().st_mode & 0o777 == 0o600 for node in nodes)
    assert not (over / "stop").exists()


def test_a_path_names_a_run_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_dir(tmp_path / "elsewhere")

    assert stop.run([str(folder), "--wait", "0"]) == 1

    assert "only ranks that call safelaunch.should_stop() can be told" in capsys.readouterr().out


def test_nothing_is_written_behind_a_link(runs: Path, tmp_path: Path) -> None:
    (run_dir(runs / "job") / "stop").symlink_to(tmp_path / "precious")

    with pytest.raises(SafelaunchError, match="cannot be asked"):
        stop.run(["job"])

    assert not (tmp_path / "precious").exists()


def test_what_is_no_file_is_not_waited_for(runs: Path) -> None:
    os.mkfifo(run_dir(runs / "job") / "stop")
    with pytest.raises(SafelaunchError, match="cannot be asked"):
        stop.run(["job"])


def test_a_link_below_a_run_leads_to_no_other_run(runs: Path, tmp_path: Path) -> None:
    others = run_dir(tmp_path / "others")
    run_dir(runs / "job" / "node-a")
    (runs / "job" / "node-b").symlink_to(others)
    stop.run(["job", "--wait", "0"])
    assert (runs / "job" / "node-a" / "stop").exists()
    assert not (others / "stop").exists()


def test_a_folder_that_cannot_be_looked_into_is_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir(runs / "job")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SafelaunchError, match="cannot be read: Permission denied"):
        stop.run(["job"])


@pytest.mark.parametrize("call", ["true", "-5", "9" * 4000, "1.5"])
def test_an_answer_is_a_number_of_a_call(call: str, runs: Path) -> None:
    (run_dir(runs / "job") / "stopping.json").write_text(f'{{"call": {call}}}')
    assert stop.run(["job", "--wait", "0"]) == 1


def test_the_name_of_a_run_is_shown_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop.run([str(run_dir(tmp_path / "x\nerror[SL401]: rank 7 lied")), "--wait", "0"])
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.usefixtures("runs")
def test_there_must_be_such_a_run() -> None:
    with pytest.raises(SafelaunchError, match="there is no run nobody"):
        stop.run(["nobody"])


def test_an_answer_that_is_none_is_waited_past(runs: Path) -> None:
    (run_dir(runs / "job") / "stopping.json").write_text('{"call": "rm -rf"}')

    assert stop.run(["job", "--wait", "0"]) == 1

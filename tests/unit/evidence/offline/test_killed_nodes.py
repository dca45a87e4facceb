"""A node that was killed has left no result; what the others have concluded of it stands above its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import main
from safelaunch.codec import to_json
from safelaunch.model import Verdict
from safelaunch.model.nodes import Node, Nodes

NODES = Nodes(0, 1, (Node(0, "node-0", "", 4000), Node(1, "node-1", "", 4000)), "ab" * 32)
LOST = Verdict(
    code="SL604", slug="node-lost", kind="infra", summary="node-1 has gone without a goodbye", host="node-1", nodes=2
)


def killed(above: Path) -> Path:
    """What is left in the folder of a node whose supervisor was killed."""
    folder = above / "node-1"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"run_id": "job"}))
    (folder / "agent.log").write_text("[W1126 02:12:08.955229986 x.cpp:1] the name of a host cannot be retrieved\n")
    events: list[dict[str, Any]] = [{"event": "agent", "pid": 7}, {"event": "nodes", "nodes": to_json(NODES)}]
    (folder / "agent.jsonl").write_text("".join(json.dumps(one | {"time": 9.0, "t": 1.0}) + "\n" for one in events))
    return folder


def concluded(path: Path, *verdicts: Verdict, rounds: tuple[str, ...] = (NODES.round,)) -> None:
    told = {"exit_code": 75, "verdicts": [to_json(one) for one in verdicts], "rounds": rounds}
    path.write_text(json.dumps(told))


def diagnosed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    main.main(["diagnose", "--json", str(folder)])
    return json.loads(capsys.readouterr().out)["conclusions"]


def test_what_the_others_say_is_said_of_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed(tmp_path)
    concluded(tmp_path / "result.json", LOST)
    (found,) = diagnosed(folder, capsys)
    assert (found["verdict"]["code"], found["verdict"]["host"]) == ("SL604", "node-1")
    assert "this one left no result" in found["notes"][0]


def test_another_job_of_the_same_name_says_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed(tmp_path)
    concluded(tmp_path / "result.json", LOST, rounds=("0" * 16,))
    assert diagnosed(folder, capsys)[0]["verdict"]["code"] != "SL604"
    concluded(tmp_path / "result-1.json", LOST)
    assert diagnosed(folder, capsys)[0]["verdict"]["code"] == "SL604"


@pytest.mark.parametrize("text", ["", "[]", '{"rounds": 7}', '{"rounds": ["x"], "verdicts": [[[]]]}'])
def test_a_result_that_is_none_costs_nothing(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed(tmp_path)
    (tmp_path / "result.json").write_text(text)
    assert diagnosed(folder, capsys)[0]["verdict"]["code"] != "SL604"


def test_where_it_has_left_its_own_result_that_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = killed(tmp_path)
    concluded(tmp_path / "result.json", LOST)
    (folder / "result.json").write_text(json.dumps({"exit_code": 0, "verdicts": []}))
    assert diagnosed(folder, capsys)[0]["verdict"] is None

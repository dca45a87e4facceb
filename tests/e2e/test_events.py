"""events.jsonl: what happens in a run, by its schema, and `safelaunch events`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
from harness import REPOSITORY, environment, launch, newest_run, start

SCHEMA = json.loads((REPOSITORY / "docs" / "events.schema.json").read_text())

TRAINS = """
import os, time, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(1000):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    if os.path.exists("enough"):
        break
    if step > 5 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == os.environ.get("FAIL"):
        time.sleep(2)  # for a look at the steps of all ranks
        raise ValueError("no")
"""


def of(run_dir: Path | None) -> list[dict[str, Any]]:
    assert run_dir is not None
    events = [json.loads(row) for row in (run_dir / "events.jsonl").read_text().splitlines()]
    for event in events:
        jsonschema.validate(event, SCHEMA)
    return events


def test_each_event_is_by_its_schema_and_they_tell_the_story(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    options = ("--preflight", "off", "--nproc-per-node", 2, "--max-restarts", 1)
    ended = launch(*options, "train.py", cwd=tmp_path, FAIL="0")

    assert ended.code == 0, ended.err
    events = of(ended.run_dir)
    # A rank that has raised, and takes long to end, is told of.
    events = [event for event in events if event["event"] != "notice"]
    kinds = [event["event"] for event in events]
    assert kinds == ["start", "ready", "first_step", "verdict", "restart", "ready", "first_step", "end"]
    assert [event["ranks"] for event in events if event["event"] == "ready"] == [[0, 1]] * 2
    verdict = events[3]
    assert (verdict["code"], verdict["ranks"], verdict["where"].split(":")[-1]) == ("SL401", [1], "13")
    assert (events[-1]["exit_code"], events[-1]["attempts"]) == (0, 2)
    assert events[2]["after_s"] > events[1]["after_s"] > 0


def test_they_are_followed_until_the_run_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    running = start("--preflight", "off", "--nproc-per-node", 1, "train.py", cwd=tmp_path)
    while (run_dir := newest_run(tmp_path)) is None or not (run_dir / "events.jsonl").exists():
        assert running.poll() is None
    command = [sys.executable, "-m", "safelaunch", "events", "-f"]
    follows = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert follows.stdout is not None
    seen = []
    for row in follows.stdout:
        seen.append(row.split()[2])
        if seen[-1] == "first_step":
            (tmp_path / "enough").touch()
    assert running.wait(60) == 0
    assert follows.wait(60) == 0
    assert seen == ["start", "ready", "first_step", "end"]

    ended = subprocess.run(
        [*command[:-1], str(run_dir), "--json"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert [json.loads(row) for row in ended.stdout.splitlines()] == of(run_dir)

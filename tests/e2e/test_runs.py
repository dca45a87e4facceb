"""What is remembered from run to run, and what of it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import Ended, environment, launch

FAILS = """
import os, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    if step == 12 and "well" not in os.environ:
        raise ValueError(f"at last {os.getpid()}")
"""


def train(folder: Path, *options: object, **changes: str | None) -> Ended:
    (folder / "train.py").write_text(FAILS)
    changes = {"SAFELAUNCH_HISTORY": None, "XDG_STATE_HOME": str(folder / "state"), **changes}
    return launch("--preflight", "off", *options, "train.py", "--api-key", "sk-1", cwd=folder, **changes)


def runs(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "safelaunch", "runs", *options]
    environ = environment(XDG_STATE_HOME=str(folder / "state"))
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout


def test_a_second_time_at_the_same_step_is_told_and_all_runs_are_listed(tmp_path: Path) -> None:
    first, second, third = train(tmp_path), train(tmp_path), train(tmp_path, well="")

    assert first.run_dir is not None
    told = f"= because: the same verdict for the second time at step 13 (before: run {first.run_dir.name})"
    assert "the same verdict" not in first.err
    assert told in second.err
    assert third.code == 0
    rows = runs(tmp_path).splitlines()
    assert [row.split("  ")[-2:] for row in rows[::2][:1]] == [["exit 1", first.run_dir.name]]
    assert "SL401: rank 0 raised ValueError: at last" in rows[1]
    assert "  20 steps in " in rows[-1]
    assert "  exit 0  " in rows[-1]
    kept = json.loads(runs(tmp_path, "--json", "-n", "1"))
    assert [(run["steps"], run["exit_code"], run["code"]) for run in kept] == [(20, 0, "")]
    assert "sk-1" not in (tmp_path / "state" / "safelaunch" / "runs.jsonl").read_text()
    assert "no run is remembered" in runs(tmp_path, "other.py")


def test_it_is_off_by_one_option(tmp_path: Path) -> None:
    train(tmp_path, "--no-history")

    assert not (tmp_path / "state").exists()


def test_where_nothing_can_be_kept_the_run_is_as_it_would_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder would be")

    ended = train(tmp_path, well="")

    assert ended.code == 0
    assert "safelaunch" not in ended.out + ended.err

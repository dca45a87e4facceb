"""`safelaunch dump`: what real ranks do, while they train and while they wait."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from harness import FAULTS, SAFELAUNCH, environment, newest_run, start, wait_for_lines

SCRIPT = FAULTS / "traced.py"


def running(folder: Path, *words: str) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = start("--preflight", "off", "--nproc-per-node", 2, SCRIPT, *words, cwd=folder)
    wait_for_lines(process, "ready", 2)
    return process


def dump(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*SAFELAUNCH, "dump", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def ended(process: subprocess.Popen[str], folder: Path) -> int:
    (folder / "end").touch()
    process.communicate(timeout=60)
    return process.returncode


def test_a_run_that_goes_on_is_shown_and_goes_on(tmp_path: Path) -> None:
    process = running(tmp_path)

    done = dump(tmp_path)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^ranks 0 and 1 train: steps? \d+", done.stdout, re.MULTILINE)
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    page = (run_dir / "dumps/1/report.html").read_text()
    assert "ranks 0 and 1 train: step" in page
    case: Any = json.loads((run_dir / "dumps/1/evidence/case.json").read_text())
    assert all(rank["step"] > 0 and rank["collectives"] and rank["recorded"] for rank in case["ranks"])
    assert ended(process, tmp_path) == 0


def test_one_rank_is_shown_with_its_stack_by_the_launchers_pid(tmp_path: Path) -> None:
    process = running(tmp_path)

    done = dump(tmp_path, "--ranks", "1", "--output", tmp_path / "out", process.pid)

    assert done.returncode == 0, done.stderr
    assert re.search(r"^rank 1 trains: step \d+", done.stdout, re.MULTILINE)
    assert "rank 1, pid " in done.stdout
    assert "rank 0" not in done.stdout
    assert (tmp_path / "out/evidence/rank_001/kernel.json").exists()
    assert ended(process, tmp_path) == 0


def test_a_rank_for_which_others_wait_is_named(tmp_path: Path) -> None:
    process = running(tmp_path, "hangs")
    (tmp_path / "hang").touch()
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    wait_for_notice(process)

    done = dump(tmp_path, run_dir.name, "--wait", "2s")

    assert done.returncode == 0, done.stderr
    assert "error[SL30" in done.stdout
    assert "rank 1 sleeps in evaluate" in done.stdout
    process.terminate()
    process.communicate(timeout=60)


def wait_for_notice(process: subprocess.Popen[str]) -> None:
    """Until the run itself says that ranks wait: then they do."""
    assert process.stderr is not None
    assert any("waits" in line for line in process.stderr)

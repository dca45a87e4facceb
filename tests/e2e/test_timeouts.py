"""Timeouts of a profile, as they act in real runs, and what is told of those that do not fit together."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, Ended, launch

TIMEOUTS = FAULTS / "timeout.py"
LOADER = FAULTS / "slow_loader.py"
HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"


def with_profile(text: str, *arguments: object, cwd: Path, **changes: Any) -> Ended:
    (cwd / "mine.toml").write_text(text)
    return launch("--preflight", "off", "--profile", "./mine.toml", *arguments, cwd=cwd, **changes)


def told(ended: Ended, code: str) -> list[str]:
    return [line for line in ended.err.splitlines() if f"[{code}]" in line]


@pytest.mark.parametrize(("subject", "timeout"), [("default", 7.0), ("passed", 42.0), ("mesh", 7.0)])
@pytest.mark.long
def test_a_profile_sets_the_timeout_of_process_groups(subject: str, timeout: float, tmp_path: Path) -> None:
    ended = with_profile('[timeouts]\nprocess_group = "7s"\n', TIMEOUTS, subject, cwd=tmp_path)

    assert ended.out.split() == [str(timeout)], ended.err


def test_a_collective_of_gloo_fails_after_the_five_seconds_of_a_profile(tmp_path: Path) -> None:
    text = "[timeouts]\nprocess_group = 5\n"
    ended = with_profile(text, "--nproc-per-node", 2, TIMEOUTS, "wait", cwd=tmp_path)

    assert ended.code == 1, ended.err
    assert "Timed out waiting 5000ms" in ended.err
    waited = float(ended.out.split()[0])
    assert 5.0 <= waited < 20.0
    # The rank that gave up is the victim of the one that never came.
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL414", [1]), ended.err
    assert ended.verdict["secondary"] == [0]
    assert re.search(r"rank 0's all_reduce #\d+ timed out after 5 s: rank 1 had not entered it", ended.err)
    line = 1 + TIMEOUTS.read_text().splitlines().index("        signal.pause()  # until safelaunch ends it")
    assert ended.verdict["location"]["line"] == line


def test_a_stuck_loader_worker_is_named_after_the_seconds_of_a_profile(tmp_path: Path) -> None:
    ended = with_profile('[timeouts]\nloader = "3s"\n', "--nproc-per-node", 2, LOADER, 0, 0, "stuck", cwd=tmp_path)

    assert ended.code == 1, ended.err
    assert ended.verdict["code"] == "SL401"
    assert ended.verdict["culprit_ranks"] == [1]
    assert "DataLoader timed out after 3 seconds" in ended.verdict["summary"]
    assert ended.verdict["location"]["file"].endswith("slow_loader.py")
    assert not told(ended, "SL220")


@pytest.mark.long
def test_a_loader_without_workers_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("from torch.utils.data import DataLoader\nprint(*(int(x) for x in DataLoader(range(3))))\n")

    ended = with_profile('[timeouts]\nloader = "3s"\n', script, cwd=tmp_path)

    assert (ended.code, ended.out) == (0, "0 1 2\n"), ended.err


@pytest.mark.parametrize("shell", [None, "777"])
def test_the_watchdogs_timeout_is_in_the_ranks_unless_the_shell_has_its_own(shell: str | None, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(f"import os\nprint(os.environ[{HEARTBEAT!r}])\n")

    ended = with_profile('[timeouts]\nwatchdog = "7m"\n', script, cwd=tmp_path, **{HEARTBEAT: shell})

    assert (ended.code, ended.out) == (0, f"{shell or 420}\n"), ended.err


WAYS = {
    "static, the others are missing": ("--master-addr", "127.0.0.1", "--master-port", "{port}", "--node-rank", 0),
    "static, the master is missing": ("--master-addr", "127.0.0.1", "--master-port", "{port}", "--node-rank", 1),
    "c10d, the others are missing": ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:{port}"),
    "c10d, the store is missing": (
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:{port}", "--rdzv-conf", "is_host=0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] if "store" in way or "master" in way else []) for way in WAYS]
)
def test_a_node_that_does_not_come_is_waited_for_as_long_as_the_profile_says(
    way: str, tmp_path: Path, free_port: int
) -> None:
    arguments = [str(word).format(port=free_port) for word in WAYS[way]]
    begin = time.monotonic()
    ended = with_profile('[timeouts]\nrendezvous = "4s"\n', "--nnodes", 2, *arguments, LOADER, 0, 0, cwd=tmp_path)
    took = time.monotonic() - begin

    assert ended.code == 75, ended.err
    assert told(ended, "SL602")
    assert 4.0 <= took < 45.0  # without it 60 s and more


@pytest.mark.long
def test_a_flag_for_the_rendezvous_wins_over_the_profile(tmp_path: Path, free_port: int) -> None:
    ended = with_profile(
        '[timeouts]\nrendezvous = "20m"\n', "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", free_port,
        "--node-rank", 1, "--rdzv-conf", "timeout=4", LOADER, 0, 0, cwd=tmp_path,
    )  # fmt: skip

    assert ended.code == 75, ended.err
    assert "4000ms" in ended.err


# ------------------------------------------------------------------------------- what the script itself has chosen


def test_a_loader_of_the_script_that_waits_longer_than_its_group_is_told_once(tmp_path: Path) -> None:
    ended = with_profile("", "--nproc-per-node", 2, LOADER, 50, 40, cwd=tmp_path)

    assert ended.code == 0, ended.err
    (line,) = told(ended, "SL220")
    assert "slow_loader.py:" in line
    assert "50s" in line
    assert "40s" in line
    found = [finding for finding in ended.read("result.json")["findings"] if finding["code"] == "SL220"]
    assert len(found) == 1
    assert "slow_loader.py:" in found[0]["because"][0]


@pytest.mark.long
def test_a_limit_for_hangs_behind_the_groups_own_timeout_is_told_once(tmp_path: Path) -> None:
    ended = with_profile("[hang]\nabort_after = '50s'\n", "--nproc-per-node", 2, LOADER, 30, 40, cwd=tmp_path)

    assert ended.code == 0, ended.err
    (line,) = told(ended, "SL221")
    assert "50s" in line
    assert "40s" in line
    assert not told(ended, "SL220")


def test_timeouts_that_fit_are_not_talked_about(tmp_path: Path) -> None:
    text = "[timeouts]\nprocess_group = 50\nloader = 30\n[hang]\nabort_after = 40\n"
    ended = with_profile(text, "--nproc-per-node", 2, LOADER, 0, 0, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert not [line for line in ended.err.splitlines() if "SL22" in line]


def test_the_scheduler_that_kills_too_early_is_told_at_the_launch(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=ours\nKillWait=20\n")
    ended = with_profile(
        "", "--shutdown-timeout", 90, "--max-restarts", 0, TIMEOUTS, "default",
        cwd=tmp_path, SLURM_JOB_ID="7", SLURM_CONF=str(tmp_path / "slurm.conf"),
    )  # fmt: skip

    assert ended.code == 0, ended.err
    (line,) = told(ended, "SL222")
    assert "slurm.conf:2" in line
    assert json.dumps(ended.read("run.json")).count("kill_wait") >= 1

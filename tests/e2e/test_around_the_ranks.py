"""Signals to a process around the ranks alone, which is killed, stopped or asked to end: no rank is named for it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, newest_run, start, wait_for_lines
from test_signals import agent_of, fork_server_of, guard_of, nothing_is_left, wait_until_said


def verdicts(folder: Path) -> list[dict[str, Any]]:
    run_dir = newest_run(folder)
    assert run_dir is not None
    found: list[dict[str, Any]] = json.loads((run_dir / "result.json").read_text())["verdicts"]
    return found


@pytest.mark.parametrize(
    ("signum", "restarts", "way"),
    [(signal.SIGTERM, 0, "--warm-start"), (signal.SIGTERM, 1, "--no-warm-start"), (signal.SIGINT, 1, "--warm-start")],
    ids=str,
)
def test_a_signal_to_the_agent_alone_says_nothing_of_the_ranks(
    signum: int, restarts: int, way: str, tmp_path: Path
) -> None:
    process = start("--nproc-per-node", 2, "--max-restarts", restarts, way, FAULTS / "until.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 2)

    os.kill(agent_of(process.pid), signum)

    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"error[SL601]: the agent got {signal.Signals(signum).name} and ended its ranks" in err
    assert [verdict["culprit_ranks"] for verdict in verdicts(tmp_path)] == [[]]
    assert nothing_is_left(tmp_path)


def test_an_interrupt_to_the_fork_server_alone_is_told_as_that(tmp_path: Path) -> None:
    process = start("--nproc-per-node", 2, "--warm-start", FAULTS / "until.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 2)
    server = fork_server_of(process.pid)
    assert server is not None

    os.kill(server, signal.SIGINT)

    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "error[SL601]: the fork server was killed by SIGINT; its ranks ended with it" in err
    assert nothing_is_left(tmp_path)


STOPPED = {"agent": "nobody notices that a rank ends", "guard": "nobody ends what is left if safelaunch is killed"}
STOPPED["fork server"] = STOPPED["agent"]


@pytest.mark.parametrize("part", STOPPED)
def test_a_process_around_the_ranks_that_is_stopped_is_told_as_that(part: str, tmp_path: Path) -> None:
    process = start("--nproc-per-node", 2, "--warm-start", FAULTS / "until.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 2)
    pid = {"agent": agent_of, "guard": guard_of, "fork server": fork_server_of}[part](process.pid)
    assert pid is not None

    os.kill(pid, signal.SIGSTOP)
    wait_until_said(process, f"the {part} (pid {pid}) is stopped: until `kill -CONT {pid}` {STOPPED[part]}")
    (tmp_path / "enough").touch()
    wait_for_lines(process, "done", 2)
    os.kill(pid, signal.SIGCONT)

    assert process.wait(60) == 0
    assert verdicts(tmp_path) == []


def test_a_fork_server_that_is_stopped_delays_no_end(tmp_path: Path) -> None:
    options = ("--nproc-per-node", 1, "--shutdown-timeout", 600, "--warm-start")
    process = start(*options, FAULTS / "farewell.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 1)
    server = fork_server_of(process.pid)
    assert server is not None
    os.kill(server, signal.SIGSTOP)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143
    assert (tmp_path / "saved").exists()

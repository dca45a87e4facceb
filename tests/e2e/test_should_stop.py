"""`should_stop()`: real ranks save at the same step, whoever asks for it and however."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, SAFELAUNCH, environment, launch, members, newest_run, start, token, wait_for_lines

SCRIPT = FAULTS / "stopping.py"
STARTS = pytest.mark.parametrize("how", ["--warm-start", "--no-warm-start"])


def running(folder: Path, *words: str, options: tuple[object, ...] = ()) -> subprocess.Popen[str]:
    """Two ranks in the middle of their training."""
    process = start("--preflight", "off", "--nproc-per-node", 2, *options, SCRIPT, *words, cwd=folder)
    wait_for_lines(process, "ready", 2)
    return process


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, str, Any]:
    """Exit code, stderr, and `preempted` of the result."""
    _, said = process.communicate(timeout=60)
    run_dir = newest_run(folder)
    assert run_dir is not None
    return process.returncode, said, json.loads((run_dir / "result.json").read_text())["preempted"]


def saved_at(folder: Path) -> int:
    """The call at which both ranks have saved."""
    first, second = (int((folder / f"saved-{rank}").read_text()) for rank in (0, 1))
    assert first == second
    return first


@STARTS
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1], ids=str)
def test_ranks_save_at_the_same_step_after_a_signal(signum: signal.Signals, how: str, tmp_path: Path) -> None:
    process = running(tmp_path, options=(how,))

    process.send_signal(signum)

    code, said, preempted = ended(process, tmp_path)
    assert code == 75, said
    call = saved_at(tmp_path)
    assert (preempted["by"], preempted["call"], preempted["stopped"]) == (signum.name, call, True)
    assert f"note[SL606]: stopped at call {call} of should_stop() on all ranks ({signum.name} asked for it)" in said


@STARTS
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1], ids=str)
def test_a_signal_to_every_process_of_the_job_is_no_different(signum: signal.Signals, how: str, tmp_path: Path) -> None:
    process = running(tmp_path, options=(how,))
    run_dir = newest_run(tmp_path)
    assert run_dir is not None

    for pid in {process.pid, *members(token(run_dir))}:  # as Slurm without cgroups, or systemd
        os.kill(pid, signum)

    code, said, _ = ended(process, tmp_path)
    assert code == 75, said
    saved_at(tmp_path)


def test_a_script_with_its_own_handler_gets_the_signal_once(tmp_path: Path) -> None:
    process = running(tmp_path, "handler")

    for _ in range(2):  # scancel's
        process.send_signal(signal.SIGTERM)
    wait_for_lines(process, "caught SIGTERM", 2)

    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "caught" not in said
    saved_at(tmp_path)


def test_ranks_that_do_not_stop_are_ended_at_the_deadline(tmp_path: Path) -> None:
    process = running(tmp_path, "deaf", options=("--shutdown-timeout", 1))

    process.send_signal(signal.SIGTERM)

    code, said, preempted = ended(process, tmp_path)
    assert code == 75, said
    assert preempted["stopped"] is False
    assert "SIGTERM: 2 ranks have not stopped in time" in said
    assert "note[SL606]: ended at the deadline after SIGTERM" in said


def test_a_failure_in_the_save_is_the_verdict_and_nothing_is_restarted(tmp_path: Path) -> None:
    process = running(tmp_path, "raise", options=("--max-restarts", 3))

    process.send_signal(signal.SIGUSR1)

    code, said, _ = ended(process, tmp_path)
    assert code == 1, said
    assert "error[SL401]: rank 1 raised OSError: no space left on the disk" in said
    assert "restarting" not in said


def test_the_command_asks_for_a_stop_that_nobody_retries(tmp_path: Path) -> None:
    process = running(tmp_path)
    run_dir = newest_run(tmp_path)
    assert run_dir is not None

    asked = subprocess.run(
        [*SAFELAUNCH, "stop", run_dir.name],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    code, said, preempted = ended(process, tmp_path)
    assert code == 130, said
    assert preempted["by"] == "safelaunch stop"
    assert asked.stdout == f"{run_dir.name} stops at call {saved_at(tmp_path)} of should_stop(), on all ranks\n"
    again = subprocess.run(
        [*SAFELAUNCH, "stop", run_dir.name],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, f"error[SL001]: {run_dir.name} has ended")


def test_a_run_stops_before_its_time_is_over(tmp_path: Path) -> None:
    options = ("--preflight", "off", "--nproc-per-node", 2, "--time-limit", "12s")

    result = launch(*options, SCRIPT, cwd=tmp_path)

    assert result.code == 75, result.err
    assert result.read("result.json")["preempted"]["by"].startswith("the time of the job ends in ")
    saved_at(tmp_path)


def test_somebody_at_the_keyboard_does_not_wait_for_the_deadline(tmp_path: Path) -> None:
    process = running(tmp_path, "deaf", options=("--shutdown-timeout", 60))
    process.send_signal(signal.SIGTERM)
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    while not (run_dir / "stopping.json").exists():
        assert process.poll() is None

    process.send_signal(signal.SIGINT)  # a person has waited enough

    assert process.wait(30) == 130


@STARTS
def test_the_peers_of_a_rank_that_failed_are_ended_and_not_asked_to_stop(how: str, tmp_path: Path) -> None:
    options = ("--preflight", "off", "--nproc-per-node", 2, how)

    result = launch(*options, SCRIPT, "crash", cwd=tmp_path)

    assert result.code == 1
    assert "error[SL401]: rank 1 raised ValueError: a bad sample" in result.err
    assert "asked to stop" not in result.err
    assert not (tmp_path / "saved-0").exists()

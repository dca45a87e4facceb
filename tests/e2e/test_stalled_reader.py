"""Nobody reads what safelaunch says: a pipe that is full, a terminal that is stopped. It acts all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, environment, newest_run, survivors, wait_for_lines


class FullPipe:
    """A pipe that takes nothing until somebody reads it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self._filled = 0
        try:
            while True:
                self._filled += os.write(self.writer, b"\0" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writer, True)

    def read(self) -> str:
        """All that came, to the end."""
        os.close(self.writer)
        data = b""
        while chunk := os.read(self.reader, 1 << 16):
            data += chunk
        return data[self._filled :].decode()


@pytest.fixture
def stalled() -> Iterator[FullPipe]:
    pipe = FullPipe()
    yield pipe
    os.close(pipe.reader)


def start(stalled: FullPipe, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SAFELAUNCH, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stalled.writer,
        text=True,
    )


@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
def test_a_signal_is_passed_on_and_the_time_of_the_ranks_holds(way: str, stalled: FullPipe, tmp_path: Path) -> None:
    options = (way, "--nproc-per-node", 2, "--shutdown-timeout", 2, "-v")  # much is said before the start
    process = start(stalled, tmp_path, *options, FAULTS / "family.py", "ignore")
    wait_for_lines(process, "ready", 2)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert survivors(run_dir, within_s=5) == []


def test_a_rank_may_still_save_at_once(stalled: FullPipe, tmp_path: Path) -> None:
    process = start(stalled, tmp_path, "--shutdown-timeout", 600, FAULTS / "farewell.py")
    wait_for_lines(process, "ready", 1)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143
    assert (tmp_path / "saved").exists()


def test_a_hang_is_ended_in_its_time(stalled: FullPipe, tmp_path: Path) -> None:
    options = ("--nproc-per-node", 2, "--hang-abort-after", "3s", "--shutdown-timeout", 2)
    process = start(stalled, tmp_path, *options, FAULTS / "hang.py", "sleep", 1)

    assert process.wait(60) == 124


def test_who_reads_at_last_gets_the_verdict_whole_and_last(stalled: FullPipe, tmp_path: Path) -> None:
    process = start(stalled, tmp_path, "--nproc-per-node", 2, FAULTS / "victim.py", "exit", 1)
    while not list(tmp_path.glob("safelaunch_runs/*/incident-0/verdict.json")):
        time.sleep(0.01)
    err = stalled.read()

    assert process.wait(60) == 1
    assert err.splitlines()[-1].endswith("exit 1")
    assert "error[SL4" in err


def test_a_result_that_nobody_reads_keeps_nobody(stalled: FullPipe, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*SAFELAUNCH, "--redirects", "3", "--json", "-", str(FAULTS / "hello.py")],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=stalled.writer,
        stderr=subprocess.DEVNULL,
    )

    assert process.wait(60) == 0
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert json.loads((run_dir / "result.json").read_text())["exit_code"] == 0

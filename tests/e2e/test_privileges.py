"""What a run opens to others: which ports it listens on, and what another user of the node may read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import environment, newest_run, start, token, wait_for_lines

from safelaunch.launch import scratch

WAITING = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
sys.stdout.write("ready\\n")
sys.stdout.flush()
while not os.path.exists("looked"):
    time.sleep(0.05)
"""


def listening(launcher: int) -> dict[str, set[str]]:
    """The addresses on which each program below a launcher accepts connections; that of its ranks' backend is torch's.

    gloo's ranks listen for each other as they do under torchrun, so only the launcher and what it started beside the
    ranks are looked at.
    """
    found: dict[str, set[str]] = {}
    for process in [psutil.Process(launcher), *psutil.Process(launcher).children(recursive=True)]:
        if "RANK" in process.environ():
            continue
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found.setdefault(" ".join(process.cmdline()[1:4]), set()).add(one.laddr.ip)
    return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Two ranks that wait, of a user whose umask keeps nothing from anybody."""
    (tmp_path / "train.py").write_text(WAITING)
    before = os.umask(0)
    try:
        process = start("--nproc-per-node", 2, "train.py", cwd=tmp_path)
    finally:
        os.umask(before)
    try:
        wait_for_lines(process, "ready", 2)
        yield process, tmp_path
    finally:
        (tmp_path / "looked").touch()
        process.communicate(timeout=60)


def test_a_job_of_one_node_listens_where_torchrun_does(job: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = job
    ours = listening(process.pid)
    torchrun = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        wait_for_lines(torchrun, "ready", 2)
        theirs = listening(torchrun.pid)
    finally:
        (folder / "looked").touch()
        torchrun.communicate(timeout=60)

    assert len(ours) == len(theirs) == 1, "the agent alone, for the store of its ranks"
    assert list(ours.values()) == list(theirs.values())


def test_another_user_reads_nothing_of_a_run(job: tuple[subprocess.Popen[str], Path]) -> None:
    run = newest_run(job[1])
    assert run is not None
    shared = [Path(parent, f"{scratch.PREFIX}{token(run)}") for parent in scratch.parents()]
    (memory,) = [folder for folder in shared if folder.exists()]

    for folder in (run, memory):
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (os.geteuid(), 0o700)

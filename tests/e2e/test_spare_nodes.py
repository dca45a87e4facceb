"""A spare node: it takes the place of a lost one, and ends as the job ends where it was not needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
from harness import environment

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

SCRIPT = """
import os, time, torch, torch.distributed as dist

dist.init_process_group("gloo")
attempt, stop, step = os.environ["TORCHELASTIC_RESTART_COUNT"], torch.zeros(1), 0
while not stop.item():
    stop += os.path.exists("stop")
    dist.all_reduce(stop)
    step += 1
    if step == 5:
        open(f"ready-{attempt}-{os.uname().nodename}", "w").close()
    if os.path.exists("raise") and dist.get_rank() == 1:
        raise ValueError("a bad sample")
    time.sleep(0.05)
dist.destroy_process_group()
"""


class Running:
    """A job of two nodes, with a third one that comes later."""

    def __init__(self, hosts: netns.Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        (folder / "train.py").write_text(SCRIPT)
        self.processes = {host: self._start(host) for host in (1, 2)}
        self.until(lambda: len(list(folder.glob("ready-0-*"))) == 2)
        self.processes[3] = self._start(3)
        self.until(lambda: any('"spare"' in path.read_text() for path in folder.glob("runs-3/**/agent.jsonl")))

    def _start(self, host: int) -> subprocess.Popen[str]:
        meet = (
            "--rdzv-backend",
            "c10d",
            "--rdzv-id",
            self.folder.name,
            "--rdzv-endpoint",
            f"{self.hosts.name(1)}:29400",
        )
        spare = ("--spare-nodes", "1", "--max-restarts", "1")
        command = ("-m", "safelaunch", "--preflight", "off", "--nnodes", "2", "--nproc-per-node", "1", *meet, *spare)
        environ = environment(SAFELAUNCH_RUN_DIR=str(self.folder / f"runs-{host}"), GLOO_SOCKET_IFNAME="eth0")
        return self.hosts.start(host, sys.executable, *command, "train.py", cwd=self.folder, environ=environ)

    @staticmethod
    def until(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 90
        while not what():
            assert time.monotonic() < until, "the job did not come so far"
            time.sleep(0.1)

    def kill(self, host: int) -> None:
        found = subprocess.run(
            ["ip", "netns", "pids", self.hosts.name(host)], capture_output=True, text=True, check=True
        )
        for pid in map(int, found.stdout.split()):
            os.kill(pid, signal.SIGKILL)

    def ended(self, *hosts: int) -> list[tuple[int, str]]:
        """Exit codes and what was said."""
        said = [(self.processes[host].communicate(timeout=60)[1], self.processes[host]) for host in hosts]
        return [(process.returncode, err) for err, process in said]

    def result(self, host: int) -> Any:
        (path,) = self.folder.glob(f"runs-{host}/*/{self.hosts.name(host)}/result.json")
        return json.loads(path.read_text())


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


def test_a_spare_takes_the_place_of_a_lost_node(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.kill(2)
    # The node that was there is in its second attempt, the spare in its first.
    job.until((tmp_path / f"ready-1-{hosts.name(1)}").exists)
    job.until((tmp_path / f"ready-0-{hosts.name(3)}").exists)
    (tmp_path / "stop").touch()
    (first, one), (third, three) = job.ended(1, 3)
    assert (first, third) == (0, 0), (one, three)
    assert f"SL604: {hosts.name(2)}" in one
    assert "restarting: attempt 1 of 1" in one
    assert "this node is a spare" in three
    assert "takes the place of one that is lost" in three
    assert job.result(3)["spare"]
    assert len(job.result(3)["attempts"]) == 1
    assert not job.result(1)["spare"]


def test_a_spare_that_nobody_needed_ends_with_0(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    (tmp_path / "stop").touch()
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert not any("lost" in err for _, err in ended[:2])
    assert job.result(3)["spare"]
    assert (job.result(3)["attempts"], job.result(3)["verdicts"]) == ([], [])


def test_a_spare_ends_with_the_code_of_a_job_that_fails(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    (tmp_path / "raise").touch()
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [1, 1, 1], ended
    assert "error[SL605]: the job ended while this node was a spare: SL401: rank 1 raised ValueError" in ended[2][1]

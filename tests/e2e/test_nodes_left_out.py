"""A node whose hardware is to blame for the second time leaves the job, where the others can go on without it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
from harness import environment

pytestmark = [pytest.mark.rig, pytest.mark.timeout(120)]

SCRIPT = """
import os, time, torch, torch.distributed as dist

dist.init_process_group("gloo")
host, stop, step = os.uname().nodename, torch.zeros(1), 0
while not stop.item():
    stop += os.path.exists("stop")
    dist.all_reduce(stop)
    step += 1
    if step == 5:
        open(f"steps-of-{host}-with-{os.environ['MASTER_PORT']}", "w").close()
    if step >= 10 and host == os.environ["BAD"] and os.path.exists("go"):
        raise RuntimeError(os.environ["RAISES"])
    time.sleep(0.05)
dist.destroy_process_group()
"""
BROKEN = "CUDA error: uncorrectable ECC error encountered"


class Running:
    """A job on three hosts, with a rank on each that runs; the GPU of one is broken."""

    def __init__(
        self, hosts: netns.Hosts, folder: Path, *options: object, bad: int, spare: int = 0, raises: str = BROKEN
    ) -> None:
        self.hosts, self.folder = hosts, folder
        (folder / "train.py").write_text(SCRIPT)
        (folder / "profile.toml").write_text(f'[nodes]\nbad = "{folder / "bad-nodes"}"\n')
        self._env = {"BAD": hosts.name(bad), "RAISES": raises, "GLOO_SOCKET_IFNAME": "eth0"}
        self._options = ("--rdzv-conf", "last_call_timeout=2", "--max-restarts", "3", *options)
        self.processes = {host: self._start(host) for host in (1, 2, 3) if host != spare}
        if spare:
            self.until(lambda: [*folder.glob("steps-of-*")] != [])
            self.processes[spare] = self._start(spare)
            self.until(lambda: any('"spare"' in text for text in self._journals()))
        (folder / "go").touch()

    def _start(self, host: int) -> subprocess.Popen[str]:
        endpoint = f"{self.hosts.name(1)}:29400"
        meet = ("--rdzv-backend", "c10d", "--rdzv-id", self.folder.name, "--rdzv-endpoint", endpoint)
        ours = ("--preflight", "off", "--profile", self.folder / "profile.toml", "--nproc-per-node", 1)
        command = (sys.executable, "-m", "safelaunch", *ours, *meet, *self._options, "train.py")
        environ = environment(SAFELAUNCH_RUN_DIR=str(self.folder / "runs"), **self._env)
        return self.hosts.start(host, *map(str, command), cwd=self.folder, environ=environ)

    def _journals(self) -> Iterator[str]:
        return (path.read_text() for path in self.folder.glob("runs/*/*/agent.jsonl"))

    @staticmethod
    def until(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not what():
            assert time.monotonic() < until, "the job did not come so far"
            time.sleep(0.05)

    def go_on(self, *hosts: int) -> None:
        """Once a node has left, these make steps together; then the job ends well."""
        ended = self.processes[next(host for host in self.processes if self.hosts.name(host) == self._env["BAD"])]
        self.until(lambda: ended.poll() is not None)
        for path in self.folder.glob("steps-of-*"):
            path.unlink()
        self.until(lambda: all([*self.folder.glob(f"steps-of-{self.hosts.name(host)}-*")] for host in hosts))
        (self.folder / "stop").touch()

    def ended(self, *hosts: int) -> list[tuple[int, str]]:
        """Exit codes and what was said."""
        said = [(self.processes[host].communicate(timeout=60)[1], self.processes[host]) for host in hosts]
        return [(process.returncode, err) for err, process in said]

    def result(self, name: str = "") -> Any:
        return json.loads((self.folder / "runs" / self.folder.name / name / "result.json").read_text())


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


def test_an_elastic_job_goes_on_without_it(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, "--nnodes", "2:3", bad=3)
    job.go_on(1, 2)
    ended, bad = job.ended(1, 2, 3), hosts.name(3)
    assert [code for code, _ in ended] == [0, 0, 75], ended
    for _, err in ended:
        assert err.count("to blame") == 1, err
        assert f"{bad} is to blame for the second time (SL428), and leaves the job: the others go on without it" in err
    assert "error[" not in ended[0][1] + ended[1][1]
    assert "error[SL428]: rank " in ended[2][1]
    assert "---- traceback of rank" in ended[2][1]  # the others go on, and print none
    assert (job.result(bad)["left_out"], job.result(hosts.name(1))["left_out"]) == (True, False)
    assert job.result()["exit_code"] == 0
    assert (tmp_path / "bad-nodes").read_text().split()[0] == bad


@pytest.mark.long
def test_a_spare_takes_its_place(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, "--nnodes", "2", "--spare-nodes", "1", bad=2, spare=3)
    job.go_on(1, 3)
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [0, 75, 0], ended
    assert f"{hosts.name(2)} is to blame for the second time (SL428), and leaves the job" in ended[0][1]
    assert "this node takes the place of one that is lost, or has left the job" in ended[2][1]


@pytest.mark.long
def test_the_node_with_the_store_takes_part_all_the_same(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, "--nnodes", "2:3", "--max-restarts", "2", bad=1)
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [75, 75, 75], ended
    said = f"{hosts.name(1)} is to blame for the second time (SL428), and takes part all the same: "
    assert f"{said}the store of the rendezvous is on it" in ended[0][1]
    for _, err in ended[1:]:
        assert f"{said}its own output says why" in err


@pytest.mark.long
def test_what_the_program_raises_leaves_no_node_out(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, "--nnodes", "2:3", "--max-restarts", "2", bad=3, raises="a bad sample")
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [1, 1, 1], ended
    assert not any("to blame" in err or "leaves the job" in err for _, err in ended)

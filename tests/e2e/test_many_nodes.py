"""One job on three nodes: one verdict over all of them, and a lost node is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import netns
import pytest
from harness import environment

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

SCRIPT = """
import os, time, torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, step = dist.get_rank(), 0

def fault(step):
    if step >= 20 and os.environ.get("FAULT") == f"raise@{rank}" and os.path.exists(os.environ.get("GO", "/")):
        raise ValueError("a bad sample")
    if step == 20 and os.environ.get("FAULT") == f"sleep@{rank}":
        time.sleep(100000)

stop = torch.zeros(1)
while not stop.item():
    fault(step)
    stop += os.path.exists(os.environ["STOP"])
    dist.all_reduce(stop)
    step += 1
    if step == 10:
        open(os.environ["READY"] + str(rank), "w").close()
    time.sleep(0.05)
dist.destroy_process_group()
"""
RANKS = 6


class Running:
    """The job on three hosts, two ranks each."""

    def __init__(
        self,
        hosts: netns.Hosts,
        folder: Path,
        *options: object,
        own: Mapping[int, Mapping[str, str]] | None = None,
        torchrun: int | None = None,
        nnodes: str = "3",
        **env: str,
    ) -> None:
        self.hosts, self.folder = hosts, folder
        (folder / "train.py").write_text(SCRIPT)
        meet = (
            "--rdzv-backend",
            "c10d",
            "--rdzv-id",
            f"job-{folder.name}",
            "--rdzv-endpoint",
            f"{hosts.name(1)}:29400",
        )
        size = ("--nnodes", nnodes, "--nproc-per-node", 2)
        self.torchrun = torchrun
        self.processes = [
            hosts.start(
                host,
                *map(str, (sys.executable, *self._launcher(host), *size, *meet, *options, folder / "train.py")),
                cwd=folder,
                environ=environment(
                    SAFELAUNCH_RUN_DIR=str(folder / f"runs-{host}"),
                    READY=str(folder / "ready-"),
                    STOP=str(folder / "stop"),
                    GLOO_SOCKET_IFNAME="eth0",
                    **env,
                    **(own or {}).get(host, {}),
                ),
            )
            for host in (1, 2, 3)
        ]

    def _launcher(self, host: int) -> tuple[str, ...]:
        """What starts the ranks of a host."""
        if host == self.torchrun:
            return "-m", "torch.distributed.run"
        return "-m", "safelaunch", "--preflight", "off"

    def wait_until_linked(self) -> None:
        """All ranks make steps, and the supervisors have met: `nodes` is in each journal."""
        self.wait_for_steps(RANKS)
        ours = 3 - (self.torchrun is not None)
        self._until(lambda: sum('"nodes"' in path.read_text() for path in self.folder.rglob("agent.jsonl")) == ours)
        time.sleep(3.0)  # one beat: who has never been heard cannot be lost. Nothing outside shows the link

    def wait_for_steps(self, ranks: int) -> None:
        """So many ranks have made steps."""
        self._until(lambda: all((self.folder / f"ready-{rank}").exists() for rank in range(ranks)))

    @staticmethod
    def _until(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 90
        while not what():
            assert time.monotonic() < until, "the job did not come so far"
            time.sleep(0.1)

    def inside(self, host: int) -> list[int]:
        """The processes on a host."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.hosts.name(host)], capture_output=True, text=True, check=True
        )
        return list(map(int, found.stdout.split()))

    def signal(self, host: int, signum: int) -> None:
        for pid in self.inside(host):
            os.kill(pid, signum)

    def ended(self, *hosts: int) -> list[tuple[int, str]]:
        """Exit codes and what was said, of these hosts."""
        found = [(self.processes[host - 1].communicate(timeout=90)[1], self.processes[host - 1]) for host in hosts]
        return [(process.returncode, err) for err, process in found]

    def verdicts(self) -> list[Any]:
        """The last verdict of each host that wrote one."""
        paths = sorted(self.folder.rglob("result.json"))
        return [json.loads(path.read_text())["verdicts"][-1] for path in paths]


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


def headline(err: str) -> str:
    return next((line for line in err.splitlines() if line.startswith("error[")), err)


def told(verdict: Any) -> tuple[Any, ...]:
    return verdict["code"], verdict["summary"], tuple(verdict["culprit_ranks"]), verdict["host"], verdict["exit_code"]


def test_every_node_says_who_raised_and_where(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, FAULT="raise@3")
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [1, 1, 1], ended
    assert {headline(err) for _, err in ended} == {"error[SL401]: rank 3 raised ValueError: a bad sample"}
    assert {told(verdict) for verdict in job.verdicts()} == {
        ("SL401", "rank 3 raised ValueError: a bad sample", (3,), hosts.name(2), 1)
    }
    # One of them says all of it, the others where it is.
    assert sum("---- traceback of rank 3" in err for _, err in ended) == 1
    assert sum("all of it is in the output of" in err for _, err in ended) == 2


def test_a_rank_that_others_wait_for_on_other_nodes_is_named_by_all(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, "--hang-abort-after", "12s", FAULT="sleep@3")
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [124, 124, 124], ended
    for _, err in ended:
        assert headline(err).startswith("error[SL301]: rank 3 sleeps in fault (train.py:"), err
        assert f"(host {hosts.name(2)}" in err
        assert "no rank" not in err
    assert {tuple(verdict["culprit_ranks"]) for verdict in job.verdicts()} == {(3,)}


def test_a_node_that_is_killed_is_named_by_the_others(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    job.signal(3, signal.SIGKILL)
    for code, err in job.ended(1, 2):
        assert code == 75, err
        assert headline(err).startswith(f"error[SL604]: {hosts.name(3)} has gone without a goodbye (ranks"), err
        assert f"--exclude={hosts.name(3)}" in err


def test_the_first_node_is_no_special_case(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    job.signal(1, signal.SIGKILL)
    for code, err in job.ended(2, 3):
        assert code == 75, err
        assert headline(err).startswith(f"error[SL604]: {hosts.name(1)} has gone without a goodbye (ranks"), err


def test_both_sides_of_a_cut_cable_name_it(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    hosts.do("cut", 3)
    (first, there), (second, beside), (third, alone) = job.ended(1, 2, 3)
    assert (first, second, third) == (75, 75, 75)
    for err in (there, beside):
        assert headline(err).startswith(f"error[SL604]: {hosts.name(3)} has been silent for "), err
    assert headline(alone).startswith(f"error[SL604]: {hosts.name(3)} has lost all other nodes at the same time"), alone


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_an_elastic_job_goes_on_without_a_lost_node_and_names_it(how: str, hosts: netns.Hosts, tmp_path: Path) -> None:
    conf = ("--rdzv-conf", "last_call_timeout=3")  # for which torch waits for others, once there are enough
    job = Running(hosts, tmp_path, "--max-restarts", "2", *conf, nnodes="2:3")
    job.wait_until_linked()
    for rank in range(RANKS):
        (tmp_path / f"ready-{rank}").unlink()
    if how == "killed":
        job.signal(3, signal.SIGKILL)
    else:
        hosts.do("cut", 3)
    job.wait_for_steps(ranks=4)
    job.signal(3, signal.SIGKILL)  # its agent is blocked in the store
    (tmp_path / "stop").touch()
    lost = "gone without a goodbye" if how == "killed" else "been silent for"
    for code, err in job.ended(1, 2):
        assert code == 0, err
        assert f"SL604: {hosts.name(3)} has {lost}" in err
        assert "restarting: attempt 1 of 2" in err
        assert "error[" not in err
    assert {(verdict["code"], verdict["host"]) for verdict in job.verdicts()} == {("SL604", hosts.name(3))}


@pytest.mark.long
def test_a_node_that_is_cut_off_ends_when_torchs_rendezvous_would_give_up(hosts: netns.Hosts, tmp_path: Path) -> None:
    """Where restarts are left, it might come back until then."""
    conf = "join_timeout=20,read_timeout=20"
    job = Running(hosts, tmp_path, "--max-restarts", "1", "--rdzv-conf", conf, nnodes="2:3")
    job.wait_until_linked()
    hosts.do("cut", 3)
    ((code, err),) = job.ended(3)
    assert code == 75, err
    assert headline(err).startswith(f"error[SL604]: {hosts.name(3)} has lost all other nodes at the same time"), err
    assert "the agent is blocked in the rendezvous, of which no answer comes: it is ended in 20 s" in err
    for host in (1, 2):
        job.processes[host - 1].send_signal(signal.SIGTERM)
    job.ended(1, 2)


def test_all_say_whose_agent_was_killed(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    (agent,) = (pid for pid in job.inside(2) if b"safelaunch.agent" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(agent, signal.SIGKILL)
    for code, err in job.ended(1, 2, 3):
        assert code == 75, err
        said = f"error[SL601]: the agent of {hosts.name(2)} was killed by SIGKILL; its ranks ended with it"
        assert headline(err) == said, err


def test_the_others_say_which_node_was_told_to_end(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    job.processes[1].send_signal(signal.SIGTERM)
    (first, beside), (second, itself), (third, there) = job.ended(1, 2, 3)
    assert (first, second, third) == (75, 143, 75)
    for err in (beside, there):
        assert headline(err) == f"error[SL603]: {hosts.name(2)} got SIGTERM, which ends ranks 2 and 3", err
    assert "error[" not in itself


@pytest.mark.long
def test_a_node_that_stands_still_is_lost_and_named(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    job.signal(2, signal.SIGSTOP)
    try:
        for code, err in job.ended(1, 3):
            assert code == 75, err
            assert headline(err).startswith(f"error[SL604]: {hosts.name(2)} has been silent for "), err
    finally:
        job.signal(2, signal.SIGKILL)


def test_nodes_that_find_no_link_run_as_without_one(hosts: netns.Hosts, tmp_path: Path) -> None:
    for host in (1, 2, 3):
        (tmp_path / f"secret-{host}").write_text(f"{host}")  # nobody believes anybody
        (tmp_path / f"secret-{host}").chmod(0o600)
    own = {host: {"SAFELAUNCH_SECRET_FILE": str(tmp_path / f"secret-{host}")} for host in (1, 2, 3)}
    job = Running(hosts, tmp_path, own=own)
    job.wait_until_linked()
    (tmp_path / "stop").touch()
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert not any("SL" in err for _, err in ended), ended


@pytest.mark.parametrize("torchrun", [1, 3])
def test_a_node_that_runs_torchrun_costs_the_others_nothing(torchrun: int, hosts: netns.Hosts, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = Running(hosts, tmp_path, torchrun=torchrun, FAULT="raise@3", GO=str(go))
    job.wait_until_linked()
    go.touch()
    ended = [one for host, one in zip((1, 2, 3), job.ended(1, 2, 3), strict=True) if host != torchrun]
    assert [code for code, _ in ended] == [1, 1], ended
    assert {headline(err) for _, err in ended} == {"error[SL401]: rank 3 raised ValueError: a bad sample"}


@pytest.mark.long
def test_a_slow_link_makes_no_straggler(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    hosts.do("rate", 3, 64)
    time.sleep(30)  # a straggler is told of after ten seconds or so
    (tmp_path / "stop").touch()
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert not any("SL503" in err for _, err in ended), ended


def test_a_job_that_ends_well_says_nothing(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path)
    job.wait_until_linked()
    (tmp_path / "stop").touch()
    ended = job.ended(1, 2, 3)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert not any("SL" in err for _, err in ended), ended


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("bad", [(3,), (1, 2, 3)], ids=["one link", "all links"])
def test_links_that_jitter_and_lose_packets_are_no_reason_to_speak(bad: tuple[int, ...], tmp_path: Path) -> None:
    if (reason := netns.why_not()) or not Path("/dev/net/tun").exists():
        pytest.skip(reason or "needs /dev/net/tun")
    hosts = netns.JitteryHosts(3, *bad)
    try:
        job = Running(hosts, tmp_path)
        job.wait_until_linked()
        time.sleep(30)  # a node is lost after nine seconds of silence
        (tmp_path / "stop").touch()
        ended = job.ended(1, 2, 3)
    finally:
        hosts.down()
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert not any("SL" in err for _, err in ended), ended

"""NCCL over two nodes: network namespaces as hosts, each with two fake GPUs. Both say the same of one rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
from fake_gpus import FOLDER, NCCL, FakeGpus
from harness import FAULTS

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(240)]

CULPRIT = 3  # on the second node
ENDLESS = {"STEPS": "1000000"}
TOLD = {"FAKE_NCCL_PEER_DEATH": "error"}  # NCCL notices that a peer is gone


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


class Running:
    """A program of tests/faults/gpu on two hosts, two ranks each."""

    def __init__(
        self,
        hosts: netns.Hosts,
        gpus: FakeGpus,
        folder: Path,
        program: str,
        backend: str,
        *options: object,
        torchrun: int | None = None,
        **env: str,
    ) -> None:
        self.hosts, self.folder = hosts, folder
        meet = ("--rdzv-id", f"job-{folder.name}", "--rdzv-endpoint", f"{hosts.name(1)}:29400")
        size = ("--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d")
        ours = ("-m", "safelaunch", "--preflight", "off")
        launcher = {1: ours, 2: ours, torchrun: ("-m", "torch.distributed.run")}
        self.processes = [
            hosts.start(
                host,
                *map(str, (FOLDER / "with-fake-gpus", gpus.python, *launcher[host], *size, *meet, *options)),
                str(FAULTS / "gpu" / f"{program}.py"),
                cwd=folder,
                environ=FakeGpus(gpus.python, folder / f"gpus-{host}").environment(
                    2,
                    backend,
                    FAULT_RANK=str(CULPRIT),
                    SAFELAUNCH_RUN_DIR=str(folder / f"runs-{host}"),
                    GLOO_SOCKET_IFNAME="eth0",
                    NCCL_SOCKET_IFNAME="eth0",
                    **env,
                ),
            )
            for host in (1, 2)
        ]

    def wait_for_steps(self) -> None:
        """All ranks make steps, and the supervisors know each other."""
        for process in self.processes:
            assert process.stdout is not None
            said = ""
            while said.count(" trains") < 2:  # two ranks may write into one line
                line = process.stdout.readline()
                assert line, said
                said += line
        until = time.monotonic() + 60
        while sum('"nodes"' in path.read_text() for path in self.folder.rglob("agent.jsonl")) < 2:
            assert time.monotonic() < until, "the nodes have not met"
            time.sleep(0.1)
        time.sleep(3.0)  # one beat: who has never been heard cannot be lost. Nothing outside shows the link

    def kill(self, host: int) -> None:
        """All of a host at once."""
        inside = ["ip", "netns", "pids", self.hosts.name(host)]
        for pid in subprocess.run(inside, capture_output=True, text=True, check=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    def said(self, *hosts: int) -> list[tuple[int, str]]:
        """Exit codes, and what was said on stderr."""
        ended = [self.processes[host - 1].communicate(timeout=150)[1] for host in hosts]
        return [(self.processes[host - 1].returncode, err) for host, err in zip(hosts, ended, strict=True)]

    def verdicts(self) -> list[Any]:
        """The last verdict of each host that wrote one."""
        paths = sorted(self.folder.glob("runs-*/*/*/result.json"))
        return [json.loads(path.read_text())["verdicts"][-1] for path in paths]


# Program, its mistake, seconds until torch's watchdog gives up (0: never) -> what is said, and the exit code.
FAULTS_ON_NODE_2 = {
    ("ddp", "raise", 0): ("SL401", 1),
    ("loop", "late", 0): ("SL301", 124),
    ("loop", "late", 12): ("SL301", 1),
    ("ddp", "late", 4): ("SL301", 1),  # before anything is told
    ("loop", "skip", 0): ("SL302", 124),
    ("ddp", "early", 0): ("SL408", 1),
    ("loop", "kernel", 0): ("SL318", 124),
    ("mesh", "size", 0): ("SL410", 124),
}


# With the backend before torch 2.15 most is tried by hand: a run takes 20 s.
OF_BOTH = {("ddp", "raise", 0), ("loop", "late", 0), ("loop", "late", 12)}
BACKENDS = [pytest.param(backend, marks=[] if backend == "nccl2" else [pytest.mark.long]) for backend in NCCL]


@pytest.mark.parametrize(
    ("program", "fault", "timeout", "backend"),
    [
        pytest.param(*case, backend, marks=[] if backend == "nccl2" or case in OF_BOTH else [pytest.mark.long])
        for case in FAULTS_ON_NODE_2
        for backend in NCCL
    ],
)
def test_both_nodes_name_the_rank_of_the_second(
    program: str, fault: str, timeout: int, backend: str, hosts: netns.Hosts, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    options = () if timeout else ("--hang-abort-after", "15s")
    env = {"PG_TIMEOUT": str(timeout), "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"} if timeout else {}
    job = Running(hosts, fake_gpus, tmp_path, program, backend, *options, FAULT=fault, **env)

    ended = job.said(1, 2)
    code, exit_code = FAULTS_ON_NODE_2[program, fault, timeout]
    assert [code for code, _ in ended] == [exit_code, exit_code], ended
    told = [(one["code"], one["culprit_ranks"], one["host"]) for one in job.verdicts()]
    assert told == [(code, [CULPRIT], hosts.name(2))] * 2, ended


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env", [{}, TOLD], ids=["NCCL waits", "NCCL notices"])
def test_a_node_that_is_killed_is_named(
    env: dict[str, str], backend: str, hosts: netns.Hosts, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    job = Running(hosts, fake_gpus, tmp_path, "loop", backend, **ENDLESS, **env)
    job.wait_for_steps()
    job.kill(2)

    ((code, err),) = job.said(1)
    (told,) = job.verdicts()
    assert (code, told["code"], told["host"]) == (75, "SL604", hosts.name(2)), err


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cable_that_is_cut_ends_both_nodes(
    backend: str, hosts: netns.Hosts, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    job = Running(hosts, fake_gpus, tmp_path, "loop", backend, **ENDLESS)
    job.wait_for_steps()
    hosts.do("cut", 2)

    ended = job.said(1, 2)
    assert [code for code, _ in ended] == [75, 75], ended
    assert [one["code"] for one in job.verdicts()] == ["SL604", "SL604"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_do_not_wait_for_ever_for_a_node_that_was_told_to_end(
    backend: str, hosts: netns.Hosts, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    """NCCL does not notice that its peers have ended."""
    job = Running(hosts, fake_gpus, tmp_path, "loop", backend, **ENDLESS)
    job.wait_for_steps()
    job.processes[1].send_signal(signal.SIGTERM)

    (first, err), (second, _) = job.said(1, 2)
    assert (first, second) == (75, 143), err
    assert f"error[SL603]: {hosts.name(2)} got SIGTERM, which ends ranks 2 and 3" in err, err


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("torchrun", [1, 2])
def test_ranks_that_torchrun_has_started_train_with_ours(
    torchrun: int, backend: str, hosts: netns.Hosts, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    """Their groups are made alike: with nccl2 torch splits the world's communicator."""
    job = Running(hosts, fake_gpus, tmp_path, "loop", backend, torchrun=torchrun)
    ended = job.said(1, 2)
    assert [code for code, _ in ended] == [0, 0], ended

"""Jobs of several nodes that are slow: all nodes name the rank or the node, and nobody is ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest
from harness import environment

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]

SCRIPT = """
import os, random, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank, kind = dist.get_rank(), os.environ["KIND"]
slow = str(rank) in os.environ["SLOW"].split(",")

class Samples(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(0.05 * slow)
        return torch.ones(4)

model = DistributedDataParallel(torch.nn.Linear(4, 4)) if kind == "ddp" else torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = iter(DataLoader(Samples(), batch_size=1)) if kind == "loader" else None
over, step = torch.zeros(1), 0
while not over.item():
    step += 1
    batch = next(data) if data else torch.ones(1, 4)
    time.sleep(0.03 * random.random() if kind == "noise" else 0.02 + 0.06 * (slow and not data))
    loss = model(batch).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if kind != "ddp" or step % 10 == 0:
        over.fill_(float(os.path.exists(os.environ["STOP"])))
        dist.all_reduce(over)
dist.destroy_process_group()
"""


class Running:
    """The job on some hosts, two ranks each."""

    def __init__(self, hosts: netns.Hosts, folder: Path, nodes: int, kind: str, slow: str) -> None:
        self.folder, self.stop = folder, folder / "stop"
        (folder / "train.py").write_text(SCRIPT)
        meet = ("--rdzv-backend", "c10d", "--rdzv-id", folder.name, "--rdzv-endpoint", f"{hosts.name(1)}:29400")
        command = ("-m", "safelaunch", "--preflight", "off", "--nnodes", nodes, "--nproc-per-node", 2, *meet)
        self.processes: list[subprocess.Popen[str]] = [
            hosts.start(
                host,
                *map(str, (sys.executable, *command, folder / "train.py")),
                cwd=folder,
                environ=environment(
                    SAFELAUNCH_RUN_DIR=str(folder / f"runs-{host}"),
                    STOP=str(self.stop),
                    GLOO_SOCKET_IFNAME="eth0",
                    KIND=kind,
                    SLOW=slow,
                ),
            )
            for host in range(1, nodes + 1)
        ]

    def until_told(self) -> None:
        """The first node has said something of a slow rank: its incident is there."""
        until = time.monotonic() + 120
        while not list(self.folder.glob("runs-1/**/incident-*/verdict.json")):
            assert time.monotonic() < until, "nothing was told"
            assert all(process.poll() is None for process in self.processes)
            time.sleep(0.2)

    def ended(self) -> list[str]:
        """What each host said, the first one first; all have ended well."""
        self.stop.touch()
        said = [process.communicate(timeout=60)[1] for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(said), said
        return said

    def verdicts(self) -> list[Any]:
        """Those of all hosts."""
        found = [
            json.loads(path.read_text())["verdicts"] for path in sorted(self.folder.glob("runs-*/*/*/result.json"))
        ]
        return [verdict for verdicts in found for verdict in verdicts]


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


def test_all_ranks_of_a_node_are_slow_and_all_nodes_say_it(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, 3, "compute", "2,3")
    job.until_told()
    said = job.ended()
    host = hosts.name(2)
    for one in said:
        assert f"all ranks of {host} (2 and 3) are slow" in one, said
        assert "network" not in one, said
    assert "train.py:" in said[0]
    assert "all of it is in the output of" in said[1]
    assert {(one["code"], tuple(one["culprit_ranks"]), one["host"]) for one in job.verdicts()} == {
        ("SL503", (2, 3), host)
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "slow", "words"),
    [
        ("compute", "2", "rank 2 on {} is slow"),
        ("ddp", "2,3", "all ranks of {} (2 and 3) are slow"),
        ("loader", "2,3", "waits for its DataLoader"),
    ],
)
def test_what_is_slow_is_named_on_both_nodes(
    kind: str, slow: str, words: str, hosts: netns.Hosts, tmp_path: Path
) -> None:
    job = Running(hosts, tmp_path, 2, kind, slow)
    job.until_told()
    for one in job.ended():
        assert words.format(hosts.name(2)) in one
        assert "network" not in one


@pytest.mark.long
def test_ranks_that_vary_make_nobody_slow(hosts: netns.Hosts, tmp_path: Path) -> None:
    job = Running(hosts, tmp_path, 3, "noise", "")
    time.sleep(40)  # a slow rank is told of after 25 seconds or so
    assert not any("slow" in one for one in job.ended())
    assert job.verdicts() == []

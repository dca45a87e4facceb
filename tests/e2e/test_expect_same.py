"""`safelaunch.expect_same`: who has another value is told while the run goes on, and nothing else happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import netns
import pytest
from harness import environment, launch

DIFFERS = """
import os, time, safelaunch
from argparse import Namespace
rank = int(os.environ["RANK"])
model = Namespace(layers=[12, 24 if rank == 2 else 12], name="small", token="hunter2" if rank == 2 else "b")
safelaunch.expect_same("config", {"lr": 0.1, "model": model})
for step in range(3):
    safelaunch.expect_same("step", step)
if os.fork() == 0:
    safelaunch.expect_same("of a child", os.getpid())
    os._exit(0)
os.wait()
"""
TOLD = "warning[SL234]: rank 2 differs from its peers in config.model.layers[1]: 24, theirs 12"


@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
def test_the_rank_that_differs_is_named_with_the_part(way: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DIFFERS)
    ended = launch(way, "--preflight", "off", "--nproc-per-node", 3, "train.py", cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert TOLD in ended.err
    assert ended.err.count("SL234") == 1
    (finding,) = ended.read("result.json")["findings"]
    assert finding["where"] == "train.py:6"
    assert finding["because"] == ["they differ as well in config.model.token"]
    assert "hunter2" not in (ended.run_dir / "result.json").read_text()  # type: ignore[operator]


TENSORS = """
import os, torch, safelaunch
rank = int(os.environ["RANK"])
weights = torch.zeros(3, 1000, dtype=torch.bfloat16)
weights[2, 999] = rank == 1
safelaunch.expect_same("weights", weights.t())
safelaunch.expect_same("empty", torch.zeros(0))
"""


def test_one_number_of_a_tensor_is_enough(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TENSORS)
    ended = launch("--preflight", "off", "--nproc-per-node", 3, "train.py", cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert (
        "rank 1 differs from its peers in weights: all have a tensor bfloat16 [1000, 3], and not the same" in ended.err
    )


def test_outside_of_a_run_nothing_happens(tmp_path: Path) -> None:
    code = "import safelaunch; print(safelaunch.expect_same('a', object()))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "None\n", "")


OF_NODES = """
import os, time, torch.distributed as dist, safelaunch
dist.init_process_group("gloo")
safelaunch.expect_same("commit", "abc" if os.environ["GROUP_RANK"] == "0" else "def")
safelaunch.expect_same("seed", 7 if dist.get_rank() == 3 else 5)
dist.barrier()
time.sleep(5)  # for the nodes to be linked, and to have told each other
"""


@pytest.mark.rig
def test_ranks_of_all_nodes_are_compared_by_one_of_them(rig: netns.Hosts, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OF_NODES)
    meet = ("--rdzv-backend", "c10d", "--rdzv-id", "same", "--rdzv-endpoint", f"{rig.name(1)}:29400")
    command = [
        sys.executable,
        "-m",
        "safelaunch",
        "--preflight",
        "off",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
        *meet,
    ]
    environ = environment(GLOO_SOCKET_IFNAME="eth0")
    nodes = [rig.start(host, *command, "train.py", cwd=tmp_path, environ=environ) for host in (1, 2)]
    said = ["".join(node.communicate(timeout=100)) for node in nodes]

    assert [node.returncode for node in nodes] == [0, 0], said
    told = [line for text in said for line in text.splitlines() if "SL234" in line]
    assert len(told) == 2, said
    assert any("rank 3 differs from its peers in seed: 7, theirs 5" in line for line in told)
    assert any("ranks differ in commit: 'abc' on 2 ranks (0, 1), 'def' on 2 ranks (2, 3)" in line for line in told)

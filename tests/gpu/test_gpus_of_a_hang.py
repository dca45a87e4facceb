"""On a machine with a GPU: what is read at an incident of a CUDA job that runs, and what it costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import REPOSITORY, launch

pytestmark = pytest.mark.gpu

HANGS = """
import os, time
import torch
import torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
held = torch.ones(1 << 28, device="cuda")  # 1 GiB
for _ in range(3):
    dist.all_reduce(held)
torch.cuda.synchronize()
if dist.get_rank() == dist.get_world_size() - 1:
    time.sleep(600)  # never comes
dist.all_reduce(held)
torch.cuda.synchronize()
"""


def test_the_gpus_of_a_hang(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    shared = [REPOSITORY / "tests/gpu/shared_gpu.py"] if torch.cuda.device_count() == 1 else []
    (tmp_path / "train.py").write_text(HANGS)
    ended = launch(
        *("--preflight", "off", "--nproc-per-node", 2, "--hang-abort-after", "15s"),
        *shared,
        tmp_path / "train.py",
        cwd=tmp_path,
        timeout=200,
    )

    assert ended.verdict["culprit_ranks"] == [1]
    case = ended.read("incident-0/evidence/case.json")
    gpus = case["gpus"]
    assert [gpu["ranks"] for gpu in gpus] == ([[0, 1]] if shared else [[0], [1]])
    assert all(not gpu["missing"] and not gpu["lost"] for gpu in gpus)
    assert all(gpu["memory_used"] > 1 << 30 for gpu in gpus)
    assert all(gpu["clock_mhz"] and gpu["clock_max_mhz"] and gpu["temperature"] for gpu in gpus)
    assert gpus[0]["busy_percent"] >= 50  # NCCL's kernel waits on the GPU
    if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":
        assert all(any(tenant["rank"] is not None for tenant in gpu["tenants"]) for gpu in gpus)
    if torch.cuda.nccl.version() >= (2, 24):
        assert "Job summary" in case["ras"]


def test_a_job_of_one_gpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    (tmp_path / "train.py").write_text(
        'import torch\ntorch.cuda.set_device(0)\nheld = torch.ones(1 << 28, device="cuda")\nraise ValueError("bad")\n'
    )
    ended = launch("--preflight", "off", tmp_path / "train.py", cwd=tmp_path, timeout=200)

    assert ended.verdict["culprit_ranks"] == [0]
    assert [gpu["index"] for gpu in ended.read("incident-0/evidence/case.json")["gpus"]] == [0]

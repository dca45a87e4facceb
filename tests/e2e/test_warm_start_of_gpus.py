"""Ranks that are forked from a process that has imported a torch for GPUs, on the fake GPUs: a process that is forked
after the use of one gets an error from each call of CUDA, as from NVIDIA's driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(240)]

RANKS = ("--nproc-per-node", 2)
SAFELAUNCH = ("-m", "safelaunch", "--preflight", "off", *RANKS)
STARTS = {
    "torchrun": ("-m", "torch.distributed.run", *RANKS),
    "warm": SAFELAUNCH,
    "cold": (*SAFELAUNCH, "--no-warm-start"),
}

# How a program may ask whether there is a GPU, before and after torch's distributed parts are there.
ASKS = r"""
import os
import torch
first = torch.cuda.is_available(), torch.cuda.device_count()
import torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
value = torch.full((4,), float(rank + 1), device="cuda")
dist.all_reduce(value)
seen = rank, *first, torch.cuda._is_in_bad_fork(), torch.cuda.current_device(), value.tolist()
os.write(1, (" ".join(map(str, seen)) + "\n").encode())  # `print` writes in pieces where Python runs with -u
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", NCCL)
@pytest.mark.parametrize("nvml", ["0", "1"])
def test_a_forked_rank_uses_its_gpu_as_any_other(nvml: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ASKS)
    environ = fake_gpus.environment(gpus=2, backend=backend, PYTORCH_NVML_BASED_CUDA_CHECK=nvml)

    seen = {
        name: sorted(fake_gpus.run(*start, "train.py", cwd=tmp_path, environ=environ).out.splitlines())
        for name, start in STARTS.items()
    }

    expected = [f"{rank} True 2 False {rank} [3.0, 3.0, 3.0, 3.0]" for rank in range(2)]
    assert seen == dict.fromkeys(STARTS, expected)


TOUCHES = {
    "import torch\nTHERE = torch.cuda.is_available()\n": True,  # the driver itself is asked
    "import torch\ntorch.cuda.init()\n": True,
    "import torch\nTHERE = torch.cuda.device_count()\n": False,  # NVML knows
    "import torch\nTHERE = torch.cuda.is_initialized()\n": False,
}


@pytest.mark.parametrize("text", TOUCHES)
def test_an_import_that_uses_a_gpu_is_named_and_the_start_is_cold(
    text: str, fake_gpus: FakeGpus, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "other.py").write_text(f"import os\nMADE_BY = os.getpid()\n{text}")
    (tmp_path / "own.toml").write_text('[launch]\npreload = ["other"]\n')
    (tmp_path / "train.py").write_text(
        "import os, other, torch\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "seen = other.MADE_BY == os.getpid(), torch.ones(3, device='cuda').sum().item()\n"
        "os.write(1, b'%s %s\\n' % tuple(str(value).encode() for value in seen))\n"
    )
    environ = fake_gpus.environment(gpus=2)
    environ["PYTHONPATH"] = f"{library}:{environ['PYTHONPATH']}"

    ended = fake_gpus.run(*SAFELAUNCH, "--profile", "./own.toml", "train.py", cwd=tmp_path, environ=environ)

    assert (ended.code, ended.out.splitlines()) == (0, [f"{TOUCHES[text]} 3.0"] * 2), ended.err
    assert ("cold start: importing other uses a GPU" in ended.err) == TOUCHES[text]

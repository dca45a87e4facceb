"""On a machine with a GPU: torch does not guess the GPU of a rank, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import Ended, launch

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

# Of torch's two backends for NCCL the older one guesses, and makes communicators of groups by a split if it is bound.
GUESSING = {"TORCH_DIST_USE_NCCL2": "0"}
GUESSES = ("currently unknown", "Guessing device ID", "using the device under current context")

BARRIER = """
import os, torch, torch.distributed as dist
dist.init_process_group({backend})
dist.barrier()
world = dist.group.WORLD
print("backend", dist.get_backend(), "bound", world.bound_device_id, flush=True)
one = torch.ones(1, device=f"cuda:{{os.environ['LOCAL_RANK']}}")
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
dist.destroy_process_group()
"""

# What a split of the world's communicator would hang or fail on.
GROUPS = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, size = dist.get_rank(), dist.get_world_size()
dist.barrier()
background = dist.new_group([0], backend="gloo")
if rank == 0:
    dist.barrier(background)
if rank == 0 and torch.__version__ < "2.15":  # the next group then hangs in 2.15, under torchrun, too
    alone = dist.new_group([0], use_local_synchronization=True)
    dist.all_reduce(torch.ones(1, device="cuda"), group=alone)
pair = dist.new_group(list(range(size)))
dist.barrier(pair)
mesh = init_device_mesh("cuda", (1, size), mesh_dim_names=("dp", "tp"))
dist.all_reduce(torch.ones(1, device="cuda"), group=mesh.get_group("tp"))
dist.all_reduce(torch.ones(1))
gathered = [None] * size
dist.all_gather_object(gathered, rank)
assert gathered == list(range(size))
model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[local])
model(torch.ones(2, 4, device="cuda")).sum().backward()
dist.barrier()
dist.destroy_process_group()
print("done", flush=True)
"""


@pytest.fixture
def gpus() -> int:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    count: int = torch.cuda.device_count()
    return count


def run(tmp_path: Path, source: str, ranks: int, *options: object, **changes: str) -> Ended:
    script = tmp_path / "train.py"
    script.write_text(source)
    ended = launch(
        *options,
        "--preflight",
        "off",
        "--nproc-per-node",
        ranks,
        script,
        cwd=tmp_path,
        timeout=180,
        **changes,
    )
    assert ended.code == 0, ended.err
    return ended


@pytest.mark.parametrize("backend", ["'nccl'", "'cpu:gloo,cuda:nccl'", "None"])
def test_torch_does_not_guess(tmp_path: Path, gpus: int, backend: str) -> None:
    ended = run(tmp_path, BARRIER.format(backend=backend), gpus)

    assert not [guess for guess in GUESSES if guess in ended.err], ended.err
    assert "SL902" not in ended.err
    assert ended.out.count("bound None") == gpus  # the script's own groups are not split


def test_off_is_as_with_torchrun(tmp_path: Path, gpus: int) -> None:
    (tmp_path / "off.toml").write_text("[launch]\nbind_device = false\n")
    ended = run(tmp_path, BARRIER.format(backend="'nccl'"), gpus, "--profile", "./off.toml", **GUESSING)

    assert [guess for guess in GUESSES if guess in ended.err], "this torch does not guess any more"


def test_groups_meshes_and_objects_work_as_before(tmp_path: Path, gpus: int) -> None:
    ended = run(tmp_path, GROUPS, gpus, **GUESSING)

    assert ended.out.count("done") == gpus
    assert "SL902" not in ended.err
    assert "SL23" not in ended.err


def test_the_device_that_a_script_passes_stands(tmp_path: Path, gpus: int) -> None:
    source = BARRIER.format(backend="'nccl', device_id=torch.device('cuda', int(os.environ['LOCAL_RANK']))")
    ended = run(tmp_path, source, gpus)

    assert "bound cuda:0" in ended.out


def test_two_ranks_on_one_gpu_are_told(tmp_path: Path, gpus: int) -> None:
    del gpus
    script = tmp_path / "train.py"
    script.write_text(BARRIER.format(backend="'nccl'"))
    ended = launch(
        *("--preflight", "off", "--nproc-per-node", 2, script),
        cwd=tmp_path,
        timeout=180,
        CUDA_VISIBLE_DEVICES="0",
        **GUESSING,  # the newer backend does not pass on what NCCL says
    )

    assert ended.code == 1
    codes = {finding["code"] for finding in ended.read("result.json")["findings"]}
    assert "SL230" in codes, ended.err
    assert "Duplicate GPU" in json.dumps(ended.verdict), ended.err


def test_the_mapping_is_that_of_the_driver(tmp_path: Path, gpus: int) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch, os\nprint(torch.cuda.get_device_properties(int(os.environ['LOCAL_RANK'])).uuid)\n")
    ended = launch("-v", "--nproc-per-node", gpus, script, cwd=tmp_path, timeout=180)

    assert ended.code == 0, ended.err
    (attempt,) = ended.read("run.json")["mapping"]
    mapped = {rank["uuid"].removeprefix("GPU-") for rank in attempt["ranks"]}
    assert mapped == set(ended.out.split())
    assert all(rank["address"] for rank in attempt["ranks"])

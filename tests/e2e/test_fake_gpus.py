"""The rig of fake GPUs: torch and both of its NCCL backends run on it as on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(240)]

COLLECTIVES = """
import os, torch, torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
mine = torch.full((4,), float(rank + 1)).cuda()
dist.all_reduce(mine)
assert mine.tolist() == [3.0] * 4, mine
gathered = torch.zeros(2 * size).cuda()
dist.all_gather_into_tensor(gathered, torch.tensor([rank, -rank], dtype=torch.float32).cuda())
assert gathered.tolist() == [0, 0, 1, -1], gathered
dist.broadcast(mine, 1)
dist.barrier()
dist.destroy_process_group()
print("right", flush=True)
"""


@pytest.mark.parametrize("backend", NCCL)
def test_collectives_move_the_right_numbers(fake_gpus: FakeGpus, tmp_path: Path, backend: str) -> None:
    (tmp_path / "train.py").write_text(COLLECTIVES)
    ended = fake_gpus.run(
        *("-m", "torch.distributed.run", "--nproc-per-node", 2, "train.py"),
        cwd=tmp_path,
        environ=fake_gpus.environment(2, backend),
    )

    assert ended.code == 0, ended.err
    assert ended.out.count("right") == 2

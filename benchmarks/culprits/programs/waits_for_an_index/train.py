import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

INDEX = Path(__file__).parent / "cache" / "index.json"


def build_index(path):
    offsets = []
    for shard in range(30):
        time.sleep(1)
        offsets.append(shard * 4096)
    tmp = path.with_suffix(".tmp")
    tmp.write_text(json.dumps(offsets))
    tmp.rename(path)


def load_index(rank):
    INDEX.parent.mkdir(exist_ok=True)
    if rank == 0:
        build_index(INDEX)
    while not INDEX.exists():
        time.sleep(1)
    return json.loads(INDEX.read_text())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        INDEX.unlink(missing_ok=True)
    dist.barrier()
    index = load_index(rank)
    model = DDP(nn.Linear(len(index), 4))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(50):
        opt.zero_grad()
        model(torch.randn(8, len(index))).sum().backward()
        opt.step()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

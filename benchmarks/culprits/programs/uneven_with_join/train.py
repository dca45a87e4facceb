import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def shards(rank):
    for i in range(3 if rank == 1 else 14):
        if i > 2:
            time.sleep(2.5)
        yield torch.randn(8, 16)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(16, 4))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    n = 0
    with Join([model]):
        for x in shards(rank):
            opt.zero_grad()
            model(x).sum().backward()
            opt.step()
            n += 1
    print(f"rank {rank}: {n} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

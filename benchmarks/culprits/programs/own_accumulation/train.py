import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Config:
    global_batch = 128
    micro_batches = 32

    def __init__(self, rank, world):
        self.micro = self.fit_micro(rank)
        self.accumulate = self.global_batch // (world * self.micro)

    @staticmethod
    def fit_micro(rank):
        free_gib = [42, 75][rank % 2]
        return 16 if free_gib > 64 else 8


class Loop:
    def __init__(self, cfg, local):
        self.cfg = cfg
        self.model = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).cuda(), device_ids=[local])
        self.opt = torch.optim.SGD(self.model.parameters(), 0.01)

    def context(self, i):
        last = (i + 1) % self.cfg.accumulate == 0
        return contextlib.nullcontext() if last else self.model.no_sync()

    def run(self):
        for i in range(self.cfg.micro_batches):
            x = torch.randn(self.cfg.micro, 64, device="cuda")
            with self.context(i):
                self.model(x).square().mean().backward()
            if (i + 1) % self.cfg.accumulate == 0:
                self.opt.step()
                self.opt.zero_grad()
        torch.cuda.synchronize()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    loop = Loop(Config(rank, world), local)
    loop.run()
    print(f"rank {rank} done", flush=True)


if __name__ == "__main__":
    main()

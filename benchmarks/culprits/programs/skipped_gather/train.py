import os

import torch
import torch.distributed as dist
from torch import nn


class Pairs:
    def __init__(self, rank, n):
        self.rank, self.n = rank, n

    def __iter__(self):
        for i in range(self.n):
            valid = torch.ones(8, dtype=torch.bool)
            if self.rank == 2 and i == 13:
                valid[:] = False
            yield torch.randn(8, 128), valid


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 64))

    def forward(self, x):
        return self.net(x)


def gather_features(f):
    out = [torch.empty_like(f) for _ in range(dist.get_world_size())]
    dist.all_gather(out, f.detach())
    out[dist.get_rank()] = f
    return torch.cat(out)


def contrastive(f, everyone):
    return (f @ everyone.T).mean()


class Run:
    def __init__(self):
        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        dist.init_process_group("nccl")
        self.rank = dist.get_rank()
        self.encoder = Encoder().cuda()
        self.opt = torch.optim.SGD(self.encoder.parameters(), 0.01)

    def epoch(self, number):
        seen = 0
        for x, valid in Pairs(self.rank, 30):
            if not valid.any():
                continue
            f = self.encoder(x.cuda())
            loss = contrastive(f, gather_features(f))
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            seen += int(valid.sum())
        return self.end_of_epoch(number, seen)

    def end_of_epoch(self, number, seen):
        t = torch.tensor([float(seen)] * 4, device="cuda")
        dist.all_reduce(t)
        total = t.cpu()
        if self.rank == 0:
            print(f"epoch {number} seen {total[0]}", flush=True)


if __name__ == "__main__":
    run = Run()
    for e in range(3):
        run.epoch(e)
    dist.destroy_process_group()

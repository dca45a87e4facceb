import argparse

import torch
import torch.distributed as dist
from torch import nn


class Stage(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)])

    def forward(self, x):
        return self.layers(x)


class Pipe:
    def __init__(self, args):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.width, self.micro, self.batch = args.width, args.micro, args.batch
        self.stage = Stage(args.width, 2)
        self.seen = 0

    @property
    def first(self):
        return self.rank == 0

    @property
    def last(self):
        return self.rank == self.world - 1

    def chunks(self, n):
        if self.last:
            return -(-n // self.micro)
        return n // self.micro

    def take(self, i, data):
        if self.first:
            return data[i * self.micro:(i + 1) * self.micro]
        buf = torch.empty(self.micro, self.width)
        dist.recv(buf, src=self.rank - 1)
        return buf

    def give(self, y):
        if not self.last:
            dist.send(y.contiguous(), dst=self.rank + 1)

    @torch.no_grad()
    def forward(self, data, n):
        out = []
        for i in range(self.chunks(n)):
            y = self.stage(self.take(i, data))
            self.give(y)
            self.seen += len(y)
            out.append(y.mean())
        return torch.stack(out).mean()


def finish(pipe):
    t = torch.tensor([float(pipe.seen)])
    dist.all_reduce(t)
    return t.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--micro", type=int, default=8)
    p.add_argument("--batch", type=int, default=32)
    args = p.parse_args()
    dist.init_process_group("gloo")
    pipe = Pipe(args)
    sizes = [args.batch] * 12 + [27]
    for step, n in enumerate(sizes):
        data = torch.randn(n, args.width)
        score = pipe.forward(data, n)
        total = finish(pipe)
        if pipe.first:
            print(f"step {step} score {score:.3f} rows {total}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

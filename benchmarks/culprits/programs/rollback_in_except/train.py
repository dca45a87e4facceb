import copy
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class Reader:
    def __init__(self, rank, steps):
        self.rank, self.steps = rank, steps

    def __iter__(self):
        g = torch.Generator().manual_seed(self.rank)
        for i in range(self.steps):
            x = torch.randn(16, 8, generator=g)
            y = torch.randint(0, 4, (16,), generator=g)
            if self.rank == 1 and i == 11:
                y = y[:15]
            yield x, y


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.net = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)))
        self.opt = torch.optim.AdamW(self.net.parameters(), 1e-3)
        self.good = copy.deepcopy(self.net.module.state_dict())

    def train_step(self, x, y):
        self.opt.zero_grad()
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def rollback(self):
        self.net.module.load_state_dict(self.good)
        for p in self.net.module.parameters():
            dist.broadcast(p.data, src=0)

    def run_epoch(self, reader):
        total = 0.0
        for step, (x, y) in enumerate(reader):
            try:
                total += self.train_step(x, y)
            except ValueError as e:
                log.debug("step %d: %s", step, e)
                self.rollback()
                continue
            if step % 5 == 0:
                self.good = copy.deepcopy(self.net.module.state_dict())
        return total


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    t = Trainer(dist.get_rank())
    for epoch in range(3):
        total = t.run_epoch(Reader(t.rank, 25))
        log.info("epoch %d total %.3f", epoch, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

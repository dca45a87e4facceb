import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    def __init__(self, patience=2, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad = float("inf"), 0

    def update(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(7)
        self.model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.stopper = EarlyStopping(args.patience)
        self.train_loader, self.val_loader = self.loaders()
        self.history = []

    def loaders(self):
        g = torch.Generator().manual_seed(self.rank)
        w = torch.arange(16.0) / 16
        x = torch.randn(512, 16, generator=g)
        y = (x @ w).unsqueeze(1)
        xv = torch.randn(64, 16, generator=g)
        yv = (xv @ w).unsqueeze(1)
        if self.rank == 1:
            yv = torch.randn(64, 1, generator=g) - yv
        return DataLoader(TensorDataset(x, y), 32, shuffle=True), DataLoader(TensorDataset(xv, yv), 32)

    def train_one_epoch(self):
        self.model.train()
        for x, y in self.train_loader:
            self.opt.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [nn.functional.mse_loss(self.model.module(x), y) for x, y in self.val_loader]
        return torch.stack(losses).mean().item()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_one_epoch()
            val = self.validate()
            self.history.append(val)
            print(f"[rank {self.rank}] epoch {epoch} val {val:.4f}", flush=True)
            if self.stopper.update(val):
                break
        return self.summarize()

    def summarize(self):
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {"rank": self.rank, "best": self.stopper.best})
        if self.rank == 0:
            print("best", min(e["best"] for e in everyone))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--patience", type=int, default=2)
    dist.init_process_group("gloo")
    Trainer(p.parse_args()).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

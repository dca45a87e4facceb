import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

CACHE_LOCK = threading.Lock()
CACHE = {}
COLD = [0.1, 1.5]


def warm_cache(seconds):
    with CACHE_LOCK:
        for i in range(16):
            CACHE[i] = torch.full((32,), float(i))
            time.sleep(seconds / 16)


class Corpus(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with CACHE_LOCK:
            row = CACHE.get(i % 16)
        if row is None:
            row = torch.full((32,), float(i % 16))
        return row + 0.01 * i


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.body(x).mean()


def run_epoch(model, opt, loader, epoch, rank):
    for step, tokens in enumerate(loader):
        opt.zero_grad()
        loss = model(tokens)
        loss.backward()
        opt.step()
        if step % 8 == 0 and rank == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(Classifier())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Corpus(256, rank), batch_size=8, num_workers=1)
    run_epoch(model, opt, loader, 0, rank)
    for epoch in range(1, 3):
        warmer = threading.Thread(target=warm_cache, args=(COLD[rank],), name="cache-warmer")
        warmer.start()
        time.sleep(0.3)
        run_epoch(model, opt, loader, epoch, rank)
        warmer.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

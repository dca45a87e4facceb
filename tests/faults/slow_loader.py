"""A DataLoader beside a collective: `slow_loader.py LOADER GROUP [stuck]`, both timeouts in seconds, 0 for none of the
script's own. `stuck`: a loader worker of rank 1 never comes to its second item."""

from __future__ import annotations

import datetime
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Items(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 1 and "stuck" in sys.argv and os.environ["RANK"] == "1":
            threading.Event().wait()
        return index


if __name__ == "__main__":
    loader, group = float(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=group) if group else None)
    for _ in DataLoader(Items(), num_workers=1, timeout=loader):
        dist.all_reduce(torch.zeros(1))
    dist.destroy_process_group()

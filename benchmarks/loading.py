"""`loading.py SECONDS`: prints `training`, and trains for so long, with a DataLoader worker in each rank."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Endless(Dataset):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.tensor(float(index))


def main() -> None:
    dist.init_process_group("gloo")
    os.write(1, b"training\n")
    end = time.monotonic() + float(sys.argv[1])
    for batch in DataLoader(Endless(), batch_size=2, num_workers=1):
        over = torch.tensor([float(time.monotonic() > end), batch.sum()])
        dist.all_reduce(over)
        if over[0]:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""What two ranks of a warm start, or of a cold one, can do with their GPUs: lines `fact: ...` of rank 0. Run by
first_hour.sh."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().partition("\0")[0]
there = torch.cuda.is_available()
torch.cuda.set_device(RANK)
dist.init_process_group("nccl")
numbers = torch.full((4,), RANK + 1.0, device="cuda")
dist.all_reduce(numbers)
loss = (torch.ones(8, 8, device="cuda", requires_grad=True) * 2).sum()
loss.backward()
torch.cuda.synchronize()
if RANK == 0:
    print("fact: forked:", parent == "safelaunch: fork server", flush=True)
    print("fact: a GPU is available:", there, "and refused:", torch.cuda._is_in_bad_fork(), flush=True)
    print("fact: all_reduce gives:", numbers.tolist(), flush=True)
dist.destroy_process_group()

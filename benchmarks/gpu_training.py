"""`gpu_training.py STEPS loop CALLS | ddp`: steps on a GPU, each ending in `item()`.

A step of 2 ms is mostly the host's own work, and CALLS all_reduce, or a small model in DDP. Rank 0 prints `step N`:
their median in microseconds.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, KIND = int(sys.argv[1]), sys.argv[2]
WORK_S = {"loop": 0.0019, "ddp": 0.0011}  # with the rest, some 2 ms
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")


def work() -> None:
    """Takes a fixed time, not a step of a fixed length: what is added to it shows."""
    end = time.perf_counter() + WORK_S[KIND]
    while time.perf_counter() < end:
        pass


def loop(calls: int) -> None:
    work()
    for _ in range(calls):
        dist.all_reduce(metrics)
    metrics.sum().item()


def ddp() -> None:
    work()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()


if KIND == "loop":
    metrics = torch.ones(1000, device="cuda")
    step = lambda: loop(int(sys.argv[3]))  # noqa: E731
else:
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(8, 64, device="cuda")
    step = ddp
durations = []
for _ in range(STEPS):
    begun = time.perf_counter()
    step()
    durations.append(time.perf_counter() - begun)
if dist.get_rank() == 0:
    print(f"step {1e6 * statistics.median(durations):.1f}", flush=True)
dist.destroy_process_group()

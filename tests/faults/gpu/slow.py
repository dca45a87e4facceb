"""Training on GPUs that is slow, `slow.py SHAPE KIND`, until SECONDS have passed or a file `enough` is there.

SHAPE  how it trains: `loop` (one all_reduce a step) or `ddp`
KIND   what makes rank 2 slow from step FROM on (0): its `gpu`, its `host`, its host between two waits for its GPU
       (`between`), the `link` of its GPU; or nothing: `none`, `logs` (rank 0 looks at each loss, the others never do),
       `evaluates` (rank 0, every ten steps)
SYNC   how a step ends: item (default), none
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import DEVICE, RANK, SYNC, begin, end

SHAPE, KIND = sys.argv[1:3]
FROM = int(os.environ.get("FROM", "0"))
SECONDS = float(os.environ.get("SECONDS", "60"))
KERNEL_NS = 20_000_000  # what a step's kernel takes on a GPU that is not slow
CULPRIT = 2


def prepare(step: int) -> None:
    """What makes a step slow."""
    slow = RANK == CULPRIT and step >= FROM
    if slow and KIND in ("host", "between"):
        time.sleep(0.08)
    if step == FROM and KIND == "gpu":
        os.environ["FAKE_GPU_SLOW"] = f"{CULPRIT}:5"
    if step == FROM and KIND == "link":
        os.environ["FAKE_NCCL_US"] = f"{CULPRIT}:80000"
    if KIND == "evaluates" and RANK == 0 and step % 10 == 9:
        time.sleep(0.3)


def main() -> None:
    begin()
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).to(DEVICE)
    model = DistributedDataParallel(layers) if SHAPE == "ddp" else layers
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(8, 64, device=DEVICE)
    ended = torch.zeros(1, device=DEVICE)
    begun, step = time.monotonic(), 0
    while True:
        prepare(step)
        torch.cuda._sleep(KERNEL_NS)
        if KIND == "between":
            ended.sum().item()
        loss = model(batch).square().mean()
        loss.backward()
        if SHAPE == "loop":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if SYNC == "item" or (KIND == "logs" and RANK == 0):
            loss.item()
        if step % 20 == 0:  # all stop at the same step
            over = time.monotonic() - begun > SECONDS or os.path.exists("enough")
            ended.fill_(float(over))
            dist.all_reduce(ended)
            if ended.item():
                break
    if RANK == 0:
        print(f"{step} steps in {time.monotonic() - begun:.1f} s", flush=True)
    end()


main()

"""`training.py STEPS SECONDS`: DDP steps with a loader and an optimizer, each at least SECONDS long, under gloo.

Rank 0 prints `rate N`: steps per second, without start-up.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
)
optimizer = torch.optim.AdamW(model.parameters())
loader = iter(DataLoader(torch.randn((steps + 20) * 8, 64), batch_size=8))
for step in range(steps + 20):
    if step == 20:  # after the first ones, which are slower
        begun = time.perf_counter()
    started = time.perf_counter()
    batch = next(loader)
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    time.sleep(max(0.0, seconds - (time.perf_counter() - started)))
rate = steps / (time.perf_counter() - begun)
if dist.get_rank() == 0:
    print(f"rate {rate:.3f}", flush=True)
dist.destroy_process_group()

"""Trains with NCCL and DDP until there is a file `end`: all ranks leave at the same step."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
store = dist.distributed_c10d._get_default_store()  # fake GPUs compute no sum that could tell when to end
for step in range(1, 10_000):
    model(torch.ones(4, 64, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    time.sleep(0.02)
    if step == 5:
        os.write(1, b"ready\n")
    if step % 10 == 0:
        if dist.get_rank() == 0:
            store.set(f"ends-{step}", str(os.path.exists("end")))
        if store.get(f"ends-{step}") == b"True":
            break
dist.destroy_process_group()

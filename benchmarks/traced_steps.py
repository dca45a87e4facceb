"""`traced_steps.py FOLDER`: trains with DDP under gloo until there is a file `end` in FOLDER, and leaves there how long
each step of this rank took, in µs, and how much of it its main thread has run, a step a line."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

folder = sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
batch, took, ends = torch.ones(64, 256), [], torch.zeros(1)
while not ends:
    begun, ran = time.perf_counter_ns(), time.thread_time_ns()
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    took.append((time.perf_counter_ns() - begun, time.thread_time_ns() - ran))
    if len(took) % 20 == 0:
        ends.fill_(os.path.exists(os.path.join(folder, "end")))
        dist.all_reduce(ends)
    if len(took) == 300 and dist.get_rank() == 0:
        print("ready", flush=True)
with open(os.path.join(folder, f"steps-{dist.get_rank()}"), "w") as file:
    file.writelines(f"{wall // 1000} {cpu // 1000}\n" for wall, cpu in took)
dist.destroy_process_group()

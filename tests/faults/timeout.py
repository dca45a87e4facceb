"""Prints the timeout of a process group: `timeout.py default|none|passed|group|mesh`, or lets a collective time out:
`wait`."""

from __future__ import annotations

import datetime
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

subject = sys.argv[1]
if subject == "passed":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=42))
elif subject == "none":
    dist.init_process_group("gloo", timeout=None)
elif subject == "mesh":
    group = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))["model"].get_group()
else:
    dist.init_process_group("gloo")
if subject == "wait":
    dist.barrier()
    begin = time.monotonic()
    if dist.get_rank() == 1:
        signal.pause()  # until safelaunch ends it
    try:
        dist.all_reduce(torch.zeros(1))
    finally:
        print(time.monotonic() - begin, flush=True)
if subject == "group":
    group = dist.new_group([0])
elif subject != "mesh":
    group = dist.group.WORLD
print(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
dist.destroy_process_group()

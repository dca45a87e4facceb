"""`steps.py COUNT SECONDS`: steps of a fixed length with one all_reduce each, under gloo."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

count, seconds = int(sys.argv[1]), float(sys.argv[2])
dist.init_process_group("gloo")
gradient = torch.ones(100_000)
for _ in range(count):
    begun = time.monotonic()
    dist.all_reduce(gradient)
    time.sleep(max(0.0, seconds - (time.monotonic() - begun)))
dist.barrier()
dist.destroy_process_group()

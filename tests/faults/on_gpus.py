"""Ranks of gloo that say they use a GPU each, of a machine that only NVML (a fake one) knows of.

usage: on_gpus.py sleeps|raises
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.device_count = lambda: 8  # type: ignore[assignment]
torch._C._cuda_setDevice = lambda device: None  # a torch that is built for CPU has none
torch.cuda.set_device(rank)
dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(8))
if rank == 1:
    if sys.argv[1] == "raises":
        raise RuntimeError("CUDA error: unspecified launch failure")
    while True:
        time.sleep(0.2)  # the line of the culprit
dist.all_reduce(torch.ones(8))

"""Prints the timeout of a process group: `timeout.py default|passed|group`, or lets a collective time out: `wait`."""

from __future__ import annotations

import datetime
import sys
import time

import torch
import torch.distributed as dist

subject = sys.argv[1]
if subject == "passed":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=42))
else:
    dist.init_process_group("gloo")
if subject == "wait":
    if dist.get_rank() == 1:
        time.sleep(30)
    dist.all_reduce(torch.zeros(1))
group = dist.new_group([0]) if subject == "group" else dist.group.WORLD
print(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
dist.destroy_process_group()

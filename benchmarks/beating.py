"""`beating.py`: makes a gloo group, prints `first`, `step` after the first step, and steps on until it is ended.

Each line ends with rank, attempt and pid. The second attempt ends by itself after its first step.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist


def say(what: str) -> None:
    sys.stdout.write(f"{what} {os.environ['RANK']} {attempt} {os.getpid()}\n")  # in one piece
    sys.stdout.flush()


attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
say("first")
dist.init_process_group("gloo")
gradient = torch.ones(1000)
dist.all_reduce(gradient)
say("step")
while attempt == "0":
    dist.all_reduce(gradient)
    time.sleep(0.02)
dist.barrier()
dist.destroy_process_group()

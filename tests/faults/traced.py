"""Trains with gloo until there is a file `end`; all ranks leave at the same step. Words:

late      rank 1 sleeps before each all_reduce
beats     no optimizer: a heartbeat a turn
idle      neither of both
hangs     rank 1 sleeps for ever, in an evaluation, once there is a file `hang`
alone     the ranks meet nobody; rank 1 makes no step any more once there is a file `hang`
profiles  once there is a file `profile`, rank 0 profiles a step by itself, and leaves `profiled`
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import safelaunch

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, words = dist.get_rank(), set(sys.argv[1:])
model = torch.nn.Linear(64, 64)
if not words & {"alone", "idle", "beats"}:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


def evaluate() -> None:
    while True:
        time.sleep(60)


def train() -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()


def turn(number: int) -> bool:
    """One turn of the loop; false where all ranks are to leave."""
    if words & {"beats", "idle"}:
        if "beats" in words:
            safelaunch.heartbeat(number)
        model(torch.ones(4, 64))
    elif not ("alone" in words and rank == 1 and os.path.exists("hang")):
        train()
    if "hangs" in words and rank == 1 and os.path.exists("hang"):
        evaluate()
    if "late" in words and rank == 1:
        time.sleep(0.2)  # longer than a busy machine keeps another rank
    ends = torch.tensor(float(os.path.exists("end")))
    if "alone" not in words:
        dist.all_reduce(ends)
    return not ends


profiles = "profiles" in words and rank == 0
number = 0
while number < 10_000:  # some minutes: a test that fails leaves nothing for ever
    number += 1
    if profiles and os.path.exists("profile"):
        profiles = False
        with torch.profiler.profile() as profiler:
            going = turn(number)
        with open("profiled", "w") as file:
            file.write(str(len(profiler.events() or ())))
    else:
        going = turn(number)
    if not going:
        break
    time.sleep(0.02)
    if number == 5:
        os.write(1, b"ready\n")
dist.destroy_process_group()

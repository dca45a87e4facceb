"""Ranks for `safelaunch attach`, below torchrun: `attached.py MODE GATE`. They end in good order once GATE exists.

Any signal that comes to a rank ends it with code 90: `attach` must change nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

MODE, GATE = sys.argv[1:3]
x = torch.ones(4)


def released() -> bool:
    return os.path.exists(GATE)


def until_released() -> None:
    while not released():
        time.sleep(0.2)


class Stuck(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2 and dist_rank == 1:
            until_released()
        return torch.ones(4)


def loader() -> None:
    context = "fork"
    for batch in torch.utils.data.DataLoader(Stuck(), batch_size=1, num_workers=1, multiprocessing_context=context):
        dist.all_reduce(batch)


def spin() -> None:
    while not released():
        sum(range(1000))


def steps(pause: float) -> None:
    stop = torch.zeros(1)
    while not stop.item():
        if dist_rank == 1:
            time.sleep(pause)
        stop[0] = float(dist_rank == 0 and released())
        dist.all_reduce(stop)


for number in range(signal.SIGHUP, signal.SIGSYS):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda got, frame: os._exit(90))
dist_rank = int(os.environ["RANK"])
if MODE == "init":
    os.write(1, b"ready\n")
    if dist_rank == 1:
        until_released()
dist.init_process_group("gloo")
dist.all_reduce(x)
if MODE != "init":
    os.write(1, b"ready %d\n" % dist_rank)
if MODE == "sleeps" and dist_rank == 1:
    until_released()
elif MODE == "spins" and dist_rank == 1:
    spin()
elif MODE == "loader":
    loader()
elif MODE == "healthy":
    steps(0.0)
elif MODE == "uneven":
    steps(0.05)
elif MODE == "apart" and dist_rank == 1:  # never ends
    dist.recv(x, src=0)
elif MODE == "together":  # never ends
    dist.recv(x, src=(dist_rank + 1) % dist.get_world_size())
dist.all_reduce(x)
os.write(1, b"done %d\n" % dist_rank)
dist.destroy_process_group()

"""Ranks of gloo that no launcher of ours has started. Arguments: how they start, what rank 1 does, the port.

`spawn`: torch.multiprocessing.spawn, so that a rank is an argument; `fork`: the same by fork, from a parent that has
imported torch; `environment`: this process is one rank, by its environment.
"""

import glob
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import all_reduce


def program(rank: int, what: str, port: str) -> None:
    if what == "absent" and rank == 1:
        time.sleep(3600)
    if what == "early" and rank == 1:
        raise ImportError("no such thing")
    if what.startswith("join-before"):
        joined()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    if what.startswith("join-after"):
        joined()
    tensor = torch.ones(4)
    for _ in range(3):
        all_reduce(tensor)
    if rank == 1:
        misbehave(what)
    all_reduce(tensor)
    if what == "again":
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        for _ in range(2):
            dist.all_reduce(tensor)
        if rank == 1:
            time.sleep(3600)
        dist.all_reduce(tensor)
    dist.destroy_process_group()


def joined() -> None:
    import safelaunch

    safelaunch.join()
    safelaunch.join()


def wait_for(pattern: str) -> None:
    until = time.monotonic() + 80
    while not glob.glob(pattern) and time.monotonic() < until:
        time.sleep(0.1)


def misbehave(what: str) -> None:
    if what.endswith("raise"):
        raise ValueError("boom at rank 1")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what.endswith("hang"):
        time.sleep(3600)
    if what == "late":  # until it has been told
        wait_for("safelaunch_runs/*/incident-0/notice.json")
    if what == "outlives":
        wait_for("go")


if __name__ == "__main__":
    start, what, port = sys.argv[1:4]
    if start == "environment":
        program(int(os.environ["RANK"]), what, port)
    elif start == "fork":
        mp.start_processes(program, (what, port), nprocs=2, start_method="fork")
    else:
        mp.spawn(program, (what, port), nprocs=2)
    print("done")

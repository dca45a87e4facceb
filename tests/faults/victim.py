"""A tiny distributed job in which one rank meets a fault: `victim.py KIND RANK [STEP]`.

Each kind is an ordinary mistake or accident, written as a user would write it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
STEP = int(sys.argv[3]) if len(sys.argv) > 3 else 5


def compute(step: int) -> None:
    if KIND == "exception":
        raise ValueError(f"bad batch at step {step}")
    if KIND == "long":
        raise ValueError("x" * (50 << 20))
    if KIND == "chained":
        raise RuntimeError("the job failed") from KeyError("label")
    if KIND == "segfault":
        ctypes.string_at(0)
    if KIND == "abort":
        os.abort()
    if KIND == "truncate":
        with open(os.environ["SAFELAUNCH_BLACK_BOX"], "w"):  # the file that all ranks and the supervisor have mapped
            pass
    if KIND == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if KIND == "exit":
        os._exit(3)
    if KIND == "sysexit":
        sys.exit(4)
    if KIND == "leave":
        sys.exit(0)
    if KIND == "leave_quietly":
        os._exit(0)
    if KIND == "leave_open":
        # A child that outlives us keeps our sockets open: no peer is told that we are gone.
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    if KIND == "exception_once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("only the first time")
    if KIND == "import":
        import a_module_that_does_not_exist  # noqa: F401


def main() -> None:
    rank = int(os.environ["RANK"])
    if KIND == "early_import" and rank == CULPRIT:
        import another_missing_module  # noqa: F401
    if KIND == "syntax" and rank == CULPRIT:
        import broken  # noqa: F401
    if KIND == "usage":
        argparse.ArgumentParser().parse_args(["--lr"])
    if KIND == "raised_exit":
        raise SystemExit("no data in /data")
    if KIND == "ignore_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("gloo")
    weights = torch.zeros(1000)
    for step in range(200):
        time.sleep(0.01)
        if step == STEP:
            if KIND == "everyone":
                raise FileNotFoundError("/data/missing")
            if KIND == "small_tensor" and rank == CULPRIT:
                dist.all_reduce(torch.zeros(10))
            if KIND == "big_tensor" and rank == CULPRIT:
                dist.all_reduce(torch.zeros(5000))
            if KIND == "relay":
                failed = torch.tensor([float(rank == CULPRIT)])
                try:
                    if rank == CULPRIT:
                        raise OSError("disk on fire")
                except OSError as error:
                    dist.all_reduce(failed)
                    raise RuntimeError("some rank failed") from error
                dist.all_reduce(failed)
                raise RuntimeError("some rank failed")
            if KIND == "ignore_sigterm":
                if rank == CULPRIT:
                    raise ValueError("the other one")
                while rank == (CULPRIT + 1) % dist.get_world_size():
                    time.sleep(1)
            if rank == CULPRIT:
                compute(step)
        dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    # torch's own decorator writes all of a message to the file that the agent reads.
    record(main)() if KIND == "long" else main()

"""Ranks with loader workers and a grandchild in a session of its own: `family.py [ignore] [stop] [collective]`.

Each rank prints `ready PID` once all of its children run, and then trains on until something ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Endless(Dataset):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.tensor(float(index))


def main() -> None:
    words = set(sys.argv[1:])
    if "ignore" in words:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    for step, batch in enumerate(DataLoader(Endless(), batch_size=4, num_workers=2)):
        dist.all_reduce(batch.sum())
        if step == 2:
            os.write(1, f"ready {os.getpid()}\n".encode())  # one write: two ranks share the pipe
            if "stop" in words and rank == 0:
                os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    main()

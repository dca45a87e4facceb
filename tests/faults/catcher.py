"""Rank 0 catches SIGUSR1 and SIGUSR2; the others would die of them."""

from __future__ import annotations

import os
import signal
import time

rank = os.environ["RANK"]


def caught(signum: int, _frame: object) -> None:
    os.write(1, f"caught {signal.Signals(signum).name} on rank {rank}\n".encode())


if rank == "0":
    signal.signal(signal.SIGUSR1, caught)
    signal.signal(signal.SIGUSR2, caught)
os.write(1, b"ready\n")
while True:
    time.sleep(0.1)

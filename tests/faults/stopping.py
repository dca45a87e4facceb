"""Trains with gloo until `should_stop()` says so, and leaves `saved-RANK` with the number of the call. Words:

handler   has a handler of its own for SIGTERM, which prints a line
deaf      never stops
raise     rank 1 raises in its save
crash     rank 1 raises at its fifth call, and rank 0 makes no collective that would fail for it
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import safelaunch

dist.init_process_group("gloo")
rank = dist.get_rank()
if "handler" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"caught SIGTERM\n"))
# Without end: whoever asks for the stop is the test.
for call in range(1, sys.maxsize):
    if safelaunch.should_stop() and "deaf" not in sys.argv:
        if "raise" in sys.argv and rank == 1:
            raise OSError("no space left on the disk")
        with open(f"saved-{rank}", "w") as file:
            file.write(str(call))
        break
    if "crash" in sys.argv:
        if rank == 1 and call == 5:
            raise ValueError("a bad sample")
    else:
        dist.all_reduce(torch.zeros(1))
    time.sleep(0.01)
    if call == 3:
        os.write(1, b"ready\n")
dist.destroy_process_group()

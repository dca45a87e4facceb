"""Rank 1 raises, and its process goes on; its peers wait for it. What keeps it is the argument."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist

LONG = 600.0


def wait() -> None:
    threading.Event().wait(LONG)


def upload() -> None:
    """Writes, and no more: 2 MB/s."""
    with open("upload", "wb") as file:
        while not Path("enough").exists():
            file.write(bytes(1 << 20))
            file.flush()
            file.seek(0)
            time.sleep(0.5)
    Path("uploaded").touch()


class Destructor:
    def __del__(self) -> None:
        time.sleep(LONG)


def keep(how: str) -> None:
    """Leave something behind that keeps the process."""
    if how == "thread":
        threading.Thread(target=wait, name="uploader").start()
    elif how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=wait, name="uploader").start()
    elif how == "pool":
        ThreadPoolExecutor(1).submit(wait)
    elif how == "atexit":
        atexit.register(wait)
    elif how == "destructor":
        sys.modules["kept"] = Destructor()  # type: ignore[assignment]
    elif how == "hook":
        sys.excepthook = lambda *_: None
        threading.Thread(target=wait, name="uploader").start()
    elif how == "uploads":
        atexit.register(upload)
    elif how == "destroy":  # NCCL finishes what has been enqueued, and nobody else has
        dist.all_reduce(torch.ones(8, device="cuda"))
        atexit.register(dist.destroy_process_group)
    elif how == "item":
        loss = torch.ones(8, device="cuda")
        dist.all_reduce(loss)
        atexit.register(lambda: print(loss[0].item()))


on_gpus = sys.argv[2:] == ["nccl"]
if on_gpus:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if on_gpus else "gloo")
first = torch.ones(1, device="cuda" if on_gpus else "cpu")
dist.all_reduce(first)
if os.environ["RANK"] == "1":
    keep(sys.argv[1])
    raise ValueError("shard 17 is truncated")
dist.all_reduce(first)
first.item()

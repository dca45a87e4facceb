"""shared_gpu.py PROGRAM ARGUMENT...: the program with all ranks of this node on GPU 0, for machines with one GPU.

NCCL refuses two ranks of one host on one GPU (`Duplicate GPU detected`). NCCL_HOSTID makes each rank a host of its own,
so that they meet over sockets. The GPU gives its time to one process after the other: right, and slow.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import torch


def share() -> None:
    """All ranks of this process's node take GPU 0."""
    os.environ["NCCL_HOSTID"] = f"rank-{os.environ['RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["LOCAL_RANK"] = "0"
    set_device: Any = torch.cuda.set_device
    torch.cuda.set_device = lambda *_: set_device(0)


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    share()
    runpy.run_path(sys.argv[0], run_name="__main__")

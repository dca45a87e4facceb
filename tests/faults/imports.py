"""A job in which rank 0 alone imports a large package between two steps: `imports.py FOLDER`, where that lies."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist


def log() -> None:
    import heavy  # noqa: F401


def main() -> None:
    dist.init_process_group("gloo")
    weights = torch.zeros(10)
    dist.all_reduce(weights)
    if dist.get_rank() == 0:
        log()
    dist.all_reduce(weights)
    print(f"finished {dist.get_rank()}", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    main()

"""One rank of a small job over NCCL that hangs in a chosen way, until torch's watchdog writes the dumps and aborts.

`nccl_ranks.py SCENE`, with torchrun's variables, on GPUs or fake ones, four ranks. The timeout is short.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=12)
LATE_S = 600.0  # longer than any watchdog waits


def late(rank: int, x: torch.Tensor) -> None:
    """Rank 1 does not come to the sixth all_reduce; its peers run ahead."""
    for step in range(10):
        if step == 5 and rank == 1:
            time.sleep(LATE_S)
        dist.all_reduce(x)


def late_with_item(rank: int, x: torch.Tensor) -> None:
    """The same, where each step reads a result."""
    for step in range(10):
        if step == 5 and rank == 1:
            time.sleep(LATE_S)
        dist.all_reduce(x)
        x[0].item()


def skip(rank: int, x: torch.Tensor) -> None:
    """Rank 2 leaves one all_reduce out, and waits in the last one that it comes to."""
    for step in range(10):
        if not (step == 5 and rank == 2):
            dist.all_reduce(x)
    torch.cuda.synchronize()


def size(rank: int, x: torch.Tensor) -> None:
    """Rank 1 brings three elements to the sixth all_reduce, and goes on."""
    for step in range(10):
        dist.all_reduce(x[:3] if step == 5 and rank == 1 else x)
    torch.cuda.synchronize()


def operation(rank: int, x: torch.Tensor) -> None:
    """Rank 3 broadcasts where its peers reduce."""
    for step in range(10):
        if step == 5 and rank == 3:
            dist.broadcast(x, 0)
        else:
            dist.all_reduce(x)
    torch.cuda.synchronize()


def kernel(rank: int, x: torch.Tensor) -> None:
    """A kernel of rank 1 does not end; its host goes on."""
    for step in range(10):
        if step == 5 and rank == 1:
            torch.cuda._sleep(int(LATE_S * 1e9))
        dist.all_reduce(x)
    torch.cuda.synchronize()


def subgroup(rank: int, x: torch.Tensor, timeout: timedelta | None = TIMEOUT) -> None:
    """Rank 1 does not come to its pair's call, for which rank 0 waits, and ranks 2 and 3 wait in the world's next."""
    pairs = [dist.new_group(ranks, timeout=timeout) for ranks in ([0, 1], [2, 3])]
    for step in range(6):
        if step == 5 and rank == 1:
            time.sleep(LATE_S)
        dist.all_reduce(x, group=pairs[rank // 2])
        x[0].item()
        dist.all_reduce(x)
        x[0].item()


def subgroup_of_default(rank: int, x: torch.Tensor) -> None:
    """The same with torch's timeout for groups, ten minutes: rank 0 has not timed out when the dumps are written."""
    subgroup(rank, x, None)


def pipeline(rank: int, x: torch.Tensor) -> None:
    """Each stage receives and sends on; at the sixth microbatch rank 1 does not send."""
    for step in range(10):
        if rank:
            dist.recv(x, rank - 1)
            x[0].item()
        if step == 5 and rank == 1:
            time.sleep(LATE_S)
        if rank < 3:
            dist.send(x, rank + 1)


def order(rank: int, x: torch.Tensor) -> None:
    """Rank 0 enters two groups in the other order."""
    one, other = (dist.new_group([0, 1, 2, 3], timeout=TIMEOUT) for _ in range(2))
    for group in (one, other):
        dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    for group in (one, other) if rank else (other, one):
        dist.all_reduce(x, group=group)
        x[0].item()


SCENES = (late, late_with_item, skip, size, operation, kernel, subgroup, subgroup_of_default, pipeline, order)


def main() -> None:
    scene = next(scene for scene in SCENES if scene.__name__ == sys.argv[1])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=TIMEOUT)
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    scene(dist.get_rank(), x)
    torch.cuda.synchronize()
    time.sleep(LATE_S)


if __name__ == "__main__":
    main()

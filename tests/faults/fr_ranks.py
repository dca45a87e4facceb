"""One rank of a small job over gloo that hangs in a chosen way, and writes its Flight Recorder dumps before it ends.

`fr_ranks.py SCENE FOLDER`, with torchrun's variables. The names of the dumps are torch's own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

WAIT_S = 3.0  # from the last call of the slowest rank: a rank cannot tell that it hangs


def dump(folder: Path) -> None:
    rank = os.environ["RANK"]
    (folder / f"comm_lib_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace(True, True, False))
    (folder / f"comm_lib_trace_rank_{rank}.json").write_bytes(c10d._dump_fr_trace_json(True, False))


def dump_and_end(folder: Path) -> None:
    time.sleep(WAIT_S)
    dump(folder)
    # Whoever ends first tears the others' connections down.
    while len(list(folder.glob("*.json"))) < int(os.environ["WORLD_SIZE"]) - (sys.argv[1] == "gone"):
        time.sleep(0.05)
    os._exit(0)


def late(rank: int, x: torch.Tensor) -> None:
    for _ in range(5):
        dist.all_reduce(x)
    if rank == 2:
        time.sleep(60)
    dist.all_reduce(x)


def operation(rank: int, x: torch.Tensor) -> None:
    dist.all_reduce(x)
    if rank == 1:
        dist.broadcast(x, 0)
    dist.all_reduce(x)


def left_loop(rank: int, x: torch.Tensor) -> None:
    for _ in range(6 if rank != 3 else 4):
        dist.all_reduce(x)
    dist.barrier()


def subgroup(rank: int, x: torch.Tensor) -> None:
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for _ in range(3):
        dist.all_reduce(x)
        dist.all_reduce(x, group=pairs[rank // 2])
    if rank == 3:
        time.sleep(60)
    dist.all_reduce(x, group=pairs[rank // 2])
    dist.all_reduce(x)


def message(rank: int, x: torch.Tensor) -> None:
    for _ in range(2):
        if rank == 2:
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 2)
        dist.all_reduce(x)
    if rank == 2:
        time.sleep(60)
    if rank == 1:
        dist.recv(x, 2)
    dist.all_reduce(x)


def order(rank: int, x: torch.Tensor) -> None:
    one, other = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    dist.all_reduce(x, group=one)
    dist.all_reduce(x, group=other)
    for group in (one, other) if rank else (other, one):
        dist.all_reduce(x, group=group)


def healthy(rank: int, x: torch.Tensor) -> None:
    for _ in range(3):
        dist.all_reduce(x)
    time.sleep(60)


def gone(rank: int, x: torch.Tensor) -> None:
    dist.all_reduce(x)
    if rank == 1:
        os._exit(0)
    dist.all_reduce(x)


SCENES = {"late": 3, "operation": 4, "left_loop": 4, "subgroup": 4, "message": 3, "order": 3, "healthy": 2, "gone": 3}


def main() -> None:
    scene, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group("gloo")
    dist.barrier()
    threading.Thread(target=dump_and_end, args=(folder,), daemon=True).start()
    try:
        globals()[scene](dist.get_rank(), torch.ones(8))
    except RuntimeError:
        pass  # the peers of a rank that is gone still have their dumps to write
    time.sleep(60)


if __name__ == "__main__":
    main()

"""What the training programs of this folder share. Each is an ordinary program for GPUs, with one mistake.

FAULT       the mistake (none); what each does is where it is made
FAULT_RANK  the rank that makes it (1)
FAULT_STEP  at which step (5)
STEPS       steps of the whole (20)
SYNC        how a step ends: item (default), synchronize, barrier, object, none
PG_TIMEOUT  seconds after which torch's watchdog gives up (600)
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
FAULT = os.environ.get("FAULT", "none")
STEPS = int(os.environ.get("STEPS", "20"))
SYNC = os.environ.get("SYNC", "item")
TIMEOUT = timedelta(seconds=float(os.environ.get("PG_TIMEOUT", "600")))


def wrong(step: int, *faults: str) -> bool:
    """Whether this rank makes one of these mistakes now."""
    mine = int(os.environ.get("FAULT_RANK", "1")) == RANK and int(os.environ.get("FAULT_STEP", "5")) == step
    return mine and FAULT in faults


def begin() -> None:
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", timeout=TIMEOUT)


def load(step: int, *shape: int) -> torch.Tensor:
    """The batch of a step."""
    time.sleep(0.03)
    if wrong(step, "late"):
        time.sleep(3600)
    if wrong(step, "raise"):
        raise ValueError(f"batch {step} is broken")
    batch = torch.ones(shape).to(DEVICE, non_blocking=True)
    if wrong(step, "oom"):
        batch = torch.empty(1 << 40, device=DEVICE)
    if wrong(step, "kernel"):
        torch.cuda._sleep(1 << 60)  # it will not end today
    if wrong(step, "gpu_error"):
        os.environ["FAKE_GPU_FAULT"] = f"700@{DEVICE.index}:1"
        batch.flatten()[torch.tensor([1 << 30], device=DEVICE)]  # an assertion, on a real one
    return batch


def reduce_metrics(step: int, metrics: torch.Tensor) -> None:
    """The sum of all ranks' metrics."""
    if wrong(step, "skip"):
        return
    if wrong(step, "extra"):
        dist.all_reduce(metrics.clone())
    if wrong(step, "size"):
        metrics = metrics[:-1].contiguous()
    if wrong(step, "dtype"):
        metrics = metrics.double()
    if wrong(step, "op"):
        dist.broadcast(metrics, 0)
    else:
        dist.all_reduce(metrics, dist.ReduceOp.MAX if wrong(step, "reduction") else dist.ReduceOp.SUM)


def exchange_borders(field: torch.Tensor) -> list[torch.Tensor]:
    """What both neighbours of a ring have, by messages in one batch."""
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    borders = [torch.empty_like(field) for _ in range(2)]
    messages = [
        dist.P2POp(dist.isend, field, left),
        dist.P2POp(dist.isend, field, right),
        dist.P2POp(dist.irecv, borders[0], right),
        dist.P2POp(dist.irecv, borders[1], left),
    ]
    for one in dist.batch_isend_irecv(messages):
        one.wait()
    return borders


def end_step(step: int, loss: torch.Tensor) -> None:
    """What a program does when a step is enqueued."""
    if SYNC == "item":
        loss.item()
    elif SYNC == "synchronize":
        torch.cuda.synchronize()
    elif SYNC == "barrier":
        dist.barrier()
    elif SYNC == "object":
        dist.all_gather_object([None] * SIZE, step)
    if step == 0:
        print(f"rank {RANK} trains", flush=True)


def end() -> None:
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"rank {RANK} is done", flush=True)

"""What two ranks of NCCL do, as far as safelaunch's rules rest on it: lines `fact: ...` of rank 0, the same on every
machine if the fake GPUs are right. Run by first_hour.sh."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

RANK = int(os.environ["RANK"])
NCCL2 = os.environ.get("TORCH_DIST_USE_NCCL2") != "0" and torch.__version__ >= "2.15"


def fact(name: str, value: object) -> None:
    if RANK == 0:
        print(f"fact: {name}: {value}", flush=True)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def counters() -> list[int]:
    """Enqueued, started and completed, of the group that has come furthest."""
    if NCCL2:
        text = _distributed_c10d._dump_fr_trace_json(includeCollectives=False, onlyActive=False, backend="nccl2")
    else:
        text = _distributed_c10d._dump_nccl_trace_json(includeCollectives=False, onlyActive=False)
    dump = json.loads(text)
    names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    return max([[int(status[name]) for name in names] for status in dump["pg_status"].values()])


def main() -> None:
    os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", timeout=timedelta(seconds=90))
    store = dist.distributed_c10d._get_default_store()
    numbers = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(numbers)
    torch.cuda.synchronize()
    time.sleep(1)  # the watchdog looks now and then
    before = counters()
    fact("counters after three calls", before)

    # Rank 1 does not come.
    if RANK == 0:
        begin, event = time.monotonic(), torch.cuda.Event()
        event.record()
        dist.all_reduce(numbers)
        fact("a call returns while its peer is away", time.monotonic() - begin < 1)
        fact("an event before the call completes", until(event.query, 2))
        fact("counters rise by", [now - then for now, then in zip(counters(), before, strict=True)])
        fact("utilisation of the one who waits", until(lambda: torch.cuda.utilization() >= 90, 3))
        fact("the stream is busy", not torch.cuda.current_stream().query())
        store.set("waited", "yes")
    else:
        store.wait(["waited"], timedelta(seconds=60))
        dist.all_reduce(numbers)
    torch.cuda.synchronize()

    # A kernel of two seconds holds the stream of rank 1.
    if RANK == 1:
        torch.cuda._sleep(2 * 10**9)
    event = torch.cuda.Event()
    event.record()
    dist.all_reduce(numbers)
    held = [None, None]
    reached = until(event.query, 0.7)
    torch.cuda.synchronize()
    dist.all_gather_object(held, reached)
    fact("whose stream has come to the call", held)

    # The host runs ahead.
    begin = time.monotonic()
    if RANK == 1:
        torch.cuda._sleep(2 * 10**9)
    for _ in range(50):
        dist.all_reduce(numbers[:10])
    fact("the host runs 50 calls ahead", time.monotonic() - begin < 1)
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

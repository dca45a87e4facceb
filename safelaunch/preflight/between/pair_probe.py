"""Runs in: a child of the node's probe. Exchanges data with one other node at a time, and measures computing.

torch is imported once; each task then forks one process for each local rank, before any use of CUDA. Tasks come as
lines of JSON on stdin, results go as lines to stdout. Whatever hangs is killed at the task's deadline and has failed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TextIO

from safelaunch.preflight.active.forked import Forked, Tell, answer_stream, device_of, import_torch, steps
from safelaunch.preflight.active.progress import Progress, exit_text
from safelaunch.preflight.between.interfaces import interface_to
from safelaunch.preflight.between.parent import end_with

# Elements of float32 of the first exchange; four times as many each time, until one takes so long.
FIRST = 1 << 14
MOST = {"gloo": 1 << 23, "nccl": 1 << 27}
LONG_ENOUGH_S = 0.15
# The last size is repeated, and the best time counts: what else runs on the nodes comes and goes.
REPEATS, REPEAT_S = 10, 0.8
# How long a rank that is done waits for its peers before it closes its connections.
GOODBYE_S = 2.0
COMPUTE_S = 0.3
# After a first failure of a local rank, how long to listen for the others, which wait for it in vain.
GRACE_S = 0.5
MOST_SAID = 300  # characters of an error


@dataclass(frozen=True)
class Computed(Progress):
    """What a rank made of computing: operations per second."""

    steps: ClassVar[tuple[str, ...]] = ("computing",)
    value: float = 0.0


@dataclass(frozen=True)
class Exchanged(Progress):
    """What a rank made of its exchange with the other node: bytes per second."""

    steps: ClassVar[tuple[str, ...]] = (
        "meeting the other node",
        "init_process_group",
        "all_reduce",
        "timed all_reduce",
    )
    value: float = 0.0


def main(parent: int) -> None:
    end_with(parent)
    answer = answer_stream()
    _, error = import_torch("torch.distributed")
    print(json.dumps({"error": f"torch cannot be imported: {error}"} if error else {"ready": True}), file=answer)
    answer.flush()
    for line in () if error else sys.stdin:
        print(json.dumps(_run(json.loads(line), answer)), file=answer, flush=True)


def _run(task: dict[str, Any], answer: TextIO) -> dict[str, Any]:
    """Fork the ranks of a task, and gather what they say: the slowest one counts, and the first error."""
    me = os.getpid()
    computes = task["kind"] == "compute"

    def work(rank: int, tell: Tell) -> None:
        end_with(me)
        if task.get("hang"):
            signal.pause()
        if not computes:
            _exchange(task, rank, tell)
            return
        with steps(tell)():
            tell({"value": _flops(task["backend"], rank)})

    made = Computed if computes else Exchanged
    ranks = Forked([made(rank) for rank in range(task["nlocal"])], work, task["deadline_s"], answer)
    ranks.watch(task["deadline_s"], grace_s=GRACE_S)
    ranks.end()
    return _summed(ranks.reports, task["deadline_s"])


def _summed(reports: Sequence[Computed | Exchanged], deadline_s: float) -> dict[str, Any]:
    failed = sorted(
        (report for report in reports if report.failed_s is not None), key=lambda report: report.failed_s or 0
    )
    for report in failed:
        why = report.error or f"died {report.where} ({exit_text(report.exit_code)})"
        return {"error": f"local rank {report.rank}: {why[:MOST_SAID]}"}
    for report in reports:
        if not report.done:
            return {"error": f"local rank {report.rank} did not come back within {deadline_s:g} s, {report.where}"}
    return {"value": min(report.value for report in reports)}


def _flops(backend: str, rank: int) -> float:
    """Operations per second of multiplying matrices. On a CPU the best of many short runs in the thread's own time,
    so that neighbours do not count; on a GPU all of it, so that throttling does."""
    import torch

    if backend == "nccl":
        torch.cuda.set_device(rank)
        size = 4096
        left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        for _ in range(3):
            left @ left
        torch.cuda.synchronize()
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < COMPUTE_S:
            for _ in range(8):
                left @ left
            torch.cuda.synchronize()
            count += 8
        return count * 2.0 * size**3 / (time.perf_counter() - begin)
    torch.set_num_threads(1)
    size = 384
    left = torch.randn(size, size)
    left @ left
    best, until = float("inf"), time.monotonic() + COMPUTE_S
    while time.monotonic() < until:
        begin = time.thread_time()
        left @ left
        best = min(best, time.thread_time() - begin)
    return 2.0 * size**3 / max(best, 1e-9)


def _exchange(task: dict[str, Any], local: int, tell: Tell) -> None:
    """all_reduce with the other node: right to the last bit, then its bus bandwidth in bytes per second."""
    import torch
    import torch.distributed as dist

    backend, nlocal = task["backend"], task["nlocal"]
    world, rank = 2 * nlocal, task["role"] * nlocal + local
    timeout = timedelta(seconds=task["deadline_s"])
    step = steps(tell)
    with step():
        device = device_of(torch, cuda=backend == "nccl", rank=local)
        if (
            backend == "gloo"
            and not os.environ.get("GLOO_SOCKET_IFNAME")
            and (interface := interface_to(task["peer_ip"]))
        ):
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        host, port = task["store"]
        store = dist.PrefixStore(task["key"], dist.TCPStore(host, port, None, False, timeout, wait_for_workers=False))
    with step():
        dist.init_process_group(
            backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world, timeout=timeout
        )
    with step():
        # Whole numbers below 2^24, so that sums are exact in float32 whatever their order.
        pattern = torch.arange(FIRST, dtype=torch.float32, device=device) % 251
        total = pattern + (rank + 1)
        dist.all_reduce(total)
        if not torch.equal(total, pattern * world + world * (world + 1) // 2):
            raise ValueError("all_reduce gave wrong values")
    with step():
        tell({"value": _bandwidth(torch, dist, device, world, MOST[backend])})
        store.add("goodbye", 1)
        until = time.monotonic() + GOODBYE_S
        while store.add("goodbye", 0) < world and time.monotonic() < until:
            time.sleep(0.005)


def _bandwidth(torch: Any, dist: Any, device: Any, world: int, most: int) -> float:
    elements = FIRST
    while True:
        data = torch.ones(elements, dtype=torch.float32, device=device)
        times = [_timed(dist, torch, data, device)]
        if times[0] >= LONG_ENOUGH_S or elements >= most:
            break
        elements *= 4
    while len(times) < REPEATS and sum(times) < REPEAT_S:
        times.append(_timed(dist, torch, data, device))
    return 2 * (world - 1) / world * 4 * elements / min(times)


def _timed(dist: Any, torch: Any, data: Any, device: Any) -> float:
    """Seconds of one all_reduce, as the slowest rank saw it: so all ranks go on with the same size."""
    begin = time.perf_counter()
    dist.all_reduce(data)
    if device.type == "cuda":
        torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64, device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took.item())


if __name__ == "__main__":
    main(int(sys.argv[1]))

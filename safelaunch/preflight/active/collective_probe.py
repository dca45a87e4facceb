"""Runs in: a child process. Forks one small process per rank, has them do real collectives, prints a ProbeReport.

It ends all ranks when they are done, when one has failed, or at the deadline. The bandwidth is measured behind the
collectives whose values are compared, so that a fault there leaves their result standing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from safelaunch.codec import to_json
from safelaunch.preflight.active.forked import Forked, Tell, answer_stream, device_of, fault_of, import_torch, steps
from safelaunch.preflight.active.probe_report import ProbeReport, RankReport
from safelaunch.preflight.active.progress import IMPORTING

# Kinds of fault: `hang` or `die` (before all_reduce), `wrong` (sends wrong values), and `late-hang` or `late-die`
# (before the bandwidth is measured).

# After a first failure, how long to listen for the others: who failed as a consequence is worth a line.
GRACE_S = 0.5
# Elements of float32. NCCL moves small messages by another protocol than large ones, so it gets 16 MiB.
ELEMENTS = {"gloo": 1 << 16, "nccl": 1 << 22}
# How often all_reduce is called before the clock is started, and on the clock. 16 GiB over NVLink take half a second.
WARM_UP, MEASURED = 2, 5
PATIENCE_S = 8.0  # for one size
SPARE = 1 << 30  # bytes of GPU memory left to NCCL


def main(argv: list[str]) -> None:
    nproc, backend, deadline_s, sizes = int(argv[0]), argv[1], float(argv[2]), [int(size) for size in argv[3:]]
    answer = answer_stream()
    print(IMPORTING, file=sys.stderr, flush=True)
    import_s, error = import_torch("torch.distributed")
    report = ProbeReport(import_s=import_s, error=error)
    if not error:
        begin = time.monotonic()
        print("collectives", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="safelaunch-probe-") as folder:

            def work(rank: int, tell: Tell) -> None:
                _rank(rank, nproc, backend, f"{folder}/store", sizes, tell)

            ranks = Forked([RankReport(rank) for rank in range(nproc)], work, deadline_s, answer)
            ranks.watch(deadline_s, grace_s=GRACE_S)
            ranks.end()
        report = ProbeReport(tuple(ranks.reports), import_s, time.monotonic() - begin)
    json.dump(to_json(report), answer)
    answer.close()


def _rank(rank: int, world: int, backend: str, store: str, sizes: Sequence[int], tell: Tell) -> None:
    import torch
    import torch.distributed as dist

    fault = fault_of(rank)
    step = steps(tell)
    with step():
        device = device_of(torch, cuda=backend == "nccl", rank=rank)
        dist.init_process_group(backend, store=dist.FileStore(store, world), rank=rank, world_size=world)

    _obey(fault, "")
    # Whole numbers below 2^24, so that sums are exact in float32 whatever their order.
    pattern = torch.arange(ELEMENTS[backend], dtype=torch.float32, device=device) % 251
    mine = pattern + (rank + 1)
    if fault == "wrong":
        mine[0] += 1
    total = mine.clone()
    gathered = [torch.empty_like(mine) for _ in range(world)]
    with step():
        dist.all_reduce(total)
        wrong_sum = not torch.equal(total, pattern * world + world * (world + 1) // 2)
    with step():
        dist.all_gather(gathered, mine)
        wrong_from = [peer for peer in range(world) if not torch.equal(gathered[peer], pattern + (peer + 1))]
        # Told before the step is left: a rank that has left the last step has nothing more to say of values.
        tell({"wrong_sum": wrong_sum, "wrong_from": wrong_from})

    _obey(fault, "late-")
    tell({"measuring": True})
    tell({"bandwidth": list(_bandwidth(torch, dist, device, world, sizes))})


def _bandwidth(torch: Any, dist: Any, device: Any, world: int, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """How long all_reduce of so many bytes takes. A size for which some rank has not the memory is left out, and so
    is one that would take too long, to judge by the one before."""
    pace = 0.0  # seconds per byte
    for size in sizes:
        fits = pace * size * (WARM_UP + MEASURED) < PATIENCE_S
        if device.type == "cuda":
            torch.cuda.empty_cache()
            fits = fits and torch.cuda.mem_get_info(device)[0] > size + SPARE
        everywhere = torch.full((1,), float(fits), device=device)
        dist.all_reduce(everywhere)
        if float(everywhere) < world:
            continue
        buffer = torch.zeros(size // 4, dtype=torch.float32, device=device)
        for _ in range(WARM_UP):
            dist.all_reduce(buffer)
        _wait(torch, device)
        begin = time.perf_counter()
        for _ in range(MEASURED):
            dist.all_reduce(buffer)
        _wait(torch, device)
        seconds = (time.perf_counter() - begin) / MEASURED
        pace = seconds / size
        yield {"size": size, "seconds": seconds}
        del buffer


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _obey(fault: str, when: str) -> None:
    if fault == when + "hang":
        signal.pause()
    if fault == when + "die":
        os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1:])

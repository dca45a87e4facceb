"""Habits of GPU programs in which nothing is wrong, though a watcher may think so: `healthy.py KIND [SECONDS]`.

SECONDS is for how long a rank, or its GPU, looks as if it stood.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from training import DEVICE, RANK, SIZE, begin, end, exchange_borders

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
NANOSECONDS = 1_000_000_000  # what `torch.cuda._sleep` takes, on the fake GPUs
SLOW = 2  # the rank that differs, where one does

metrics = torch.ones(1000, device=DEVICE)


def train(steps: int, sync: bool = True) -> None:
    for _ in range(steps):
        time.sleep(0.02)
        dist.all_reduce(metrics)
        if sync:
            metrics[0].item()


def kernel(seconds: float) -> None:
    torch.cuda._sleep(int(seconds * NANOSECONDS))


def work(seconds: float) -> None:
    """The host computes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def runs_ahead() -> None:
    """The hosts enqueue all steps at once, and the GPUs need much longer for them."""
    for _ in range(200):
        kernel(SECONDS / 200)
        dist.all_reduce(metrics)


def long_kernels() -> None:
    for _ in range(2):
        kernel(SECONDS / 2)
        train(20)


def one_long_kernel() -> None:
    """One GPU has more to do than the others, once."""
    train(20)
    if RANK == SLOW:
        kernel(SECONDS)
    train(20)


def compiles() -> None:
    """The first step compiles, on one rank for longer."""

    def backend(module: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., object]:
        work(SECONDS if RANK == SLOW else 1)
        return module.forward

    step = torch.compile(lambda x: x + x, backend=backend)
    for _ in range(40):
        step(metrics)
        train(1)


def first_communicators() -> None:
    """Ranks come to each group's first call, which makes its communicator, one after the other."""
    work(SECONDS * RANK / SIZE)
    for ranks in (range(SIZE), range(0, SIZE, 2), range(1, SIZE, 2)):
        group = dist.new_group(list(ranks))
        if RANK in ranks:
            work(0.5 * RANK)
            dist.all_reduce(metrics, group=group)
    train(20)


def evaluates() -> None:
    """One rank evaluates, on its GPU; the others wait for it."""
    train(20)
    if RANK == 0:
        for _ in range(int(SECONDS / 0.05)):
            kernel(0.03)
            metrics.sum().item()
            time.sleep(0.02)
    dist.barrier()
    train(20)


def generates() -> None:
    """Each rank as many tokens as its text has."""
    train(20)
    for _ in range(int(SECONDS * (RANK + 1) / SIZE / 0.05)):
        kernel(0.02)
        metrics.sum().item()
        time.sleep(0.03)
    texts: list[object] = [None] * SIZE
    dist.all_gather_object(texts, "text" * RANK)
    train(20)


def checkpoints() -> None:
    for number in range(2):
        train(20)
        if RANK == 0:
            with open(f"checkpoint-{number}", "wb") as file:
                for _ in range(int(SECONDS / 2 / 0.1)):
                    file.write(metrics.cpu().numpy().tobytes() * 100)
                    file.flush()
                    time.sleep(0.1)
        dist.barrier()


class Slow(Dataset[Tensor]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(SECONDS / 2 if index else 0)
        return torch.ones(1000)


def loads() -> None:
    for batch in DataLoader(Slow(), num_workers=1, prefetch_factor=1):
        dist.all_reduce(batch.to(DEVICE, non_blocking=True))
        train(10)


def overlaps() -> None:
    """Calls are issued, and waited for when what stands between them is computed."""
    for _ in range(3):
        pending = [dist.all_reduce(metrics.clone(), async_op=True) for _ in range(8)]
        kernel(0.5)
        work(SECONDS / 3)
        for one in pending:
            one.wait()
        metrics[0].item()


def side_streams() -> None:
    """Another stream copies, and a group of its own works there."""
    copies, group = torch.cuda.Stream(), dist.new_group()
    for _ in range(60):
        with torch.cuda.stream(copies):
            kernel(SECONDS / 120)
            batch = torch.ones(1000).to(DEVICE, non_blocking=True)
            dist.all_reduce(batch, group=group)
        torch.cuda.current_stream().wait_stream(copies)
        train(1, sync=False)


def stages() -> None:
    """A pipeline, of which one stage takes most of the time."""
    for _ in range(6):
        if RANK > 0:
            dist.recv(metrics, RANK - 1)
        kernel(SECONDS / 4 if RANK == SLOW else 0.01)
        if RANK < SIZE - 1:
            dist.send(metrics, RANK + 1)
    dist.barrier()


def halos() -> None:
    """Neighbours exchange their borders in one batch; one of them works for longer, now and then."""
    for number in range(40):
        borders = exchange_borders(metrics)
        if RANK == SLOW and number in (10, 30):
            kernel(SECONDS / 2)
        borders[0].sum().item()
    train(10)


def accumulates() -> None:
    """Nothing is exchanged for many passes."""
    model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        with model.no_sync():
            for _ in range(int(SECONDS / 0.1)):
                time.sleep(0.08)
                model(torch.ones(4, 64, device=DEVICE)).sum().backward()
        model(torch.ones(4, 64, device=DEVICE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ends_later() -> None:
    """One rank has something to finish when the others are through."""
    train(20)
    dist.barrier()
    if RANK == 0:
        kernel(SECONDS / 2)
        work(SECONDS)


if __name__ == "__main__":
    begin()
    globals()[sys.argv[1]]()
    end()

"""Programs in which nothing is wrong, though they look like it for a while: `healthy.py KIND [SECONDS]`.

SECONDS is for how long they look like it.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])

weights = torch.zeros(1000)


def train(steps: int) -> None:
    for _ in range(steps):
        time.sleep(0.03)
        dist.all_reduce(weights)


def steps() -> None:
    train(200)


def timed_steps() -> None:
    """As many steps as fit; all ranks agree on the end."""
    begun = time.monotonic()
    over = torch.zeros(1)
    while not over.item():
        train(10)
        over.fill_(float(time.monotonic() - begun > SECONDS))
        dist.all_reduce(over)


def evaluate() -> None:
    """No collectives for a while, and no rank takes as long as another."""
    train(30)
    time.sleep(SECONDS * (1 + RANK) / SIZE)
    dist.all_reduce(torch.zeros(1))
    train(30)


class SlowFile(io.BytesIO):
    def write(self, data: bytes) -> int:
        if len(data) > 1000:
            time.sleep(SECONDS)
        return super().write(data)


def checkpoint() -> None:
    for _ in range(2):
        train(30)
        if RANK == 0:
            torch.save({"weights": torch.zeros(100_000)}, SlowFile())
        dist.barrier()


def first_step() -> None:
    """Each rank compiles, say, and one is done long before the others."""
    time.sleep(SECONDS * (1 + RANK) / SIZE)
    train(30)


class SlowSamples(Dataset):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SECONDS)
        return torch.ones(10)


def slow_loader() -> None:
    for batch in DataLoader(SlowSamples(), num_workers=1, prefetch_factor=1):
        dist.all_reduce(batch)


def accumulation() -> None:
    model = DistributedDataParallel(torch.nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        with model.no_sync():
            for _ in range(49):
                time.sleep(0.1)
                model(torch.ones(4, 100)).sum().backward()
        model(torch.ones(4, 100)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def upload() -> None:
    train(30)
    if RANK == 0:
        time.sleep(SECONDS)
    train(30)


def stopped() -> None:
    train(30)
    if RANK == 1:
        me = os.getpid()
        subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep {SECONDS}; kill -CONT {me}"])
    train(60)


def debugger() -> None:
    train(30)
    if RANK == 0:
        breakpoint()
    train(30)


def generation() -> None:
    """No group: one rank writes on, token by token, without a word to the others."""
    if RANK == 0:
        time.sleep(SECONDS)


def pipeline() -> None:
    """Three stages, of which the last takes most of the time."""
    activations = torch.zeros(1000)
    for _ in range(5):
        if RANK > 0:
            dist.recv(activations, RANK - 1)
        time.sleep((0.05, 0.5, SECONDS)[RANK])
        if RANK < SIZE - 1:
            dist.send(activations, RANK + 1)
    dist.barrier()


def async_save() -> None:
    import torch.distributed.checkpoint as dcp

    background = dist.new_group()  # in the loop's own group, its thread and ours would wait for each other
    state = {"weights": torch.zeros(1_000_000)}
    for number in range(3):
        train(30)
        saved = dcp.async_save(state, checkpoint_id=f"checkpoint-{number}", process_group=background)
        train(60)
        saved.result()


def main() -> None:
    if KIND != "generation":
        dist.init_process_group("gloo")
    globals()[KIND]()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

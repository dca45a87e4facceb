"""Programs that are slow: `slow.py KIND SHAPE [RANK] [FROM] [SECONDS]`, until SECONDS have passed or a file `enough` is
there.

KIND is what makes them slow, SHAPE how they train: `plain` (one all_reduce a step), `optimizer` (and an optimizer's
step), `ddp`, `flag` (DDP, and rank 0 says after each step whether to go on). Steps take some 30 ms when nothing is
wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, SHAPE = sys.argv[1:3]
CULPRIT = int(sys.argv[3]) if len(sys.argv) > 3 else 1
FROM = int(sys.argv[4]) if len(sys.argv) > 4 else 40
SECONDS = float(sys.argv[5]) if len(sys.argv) > 5 else 25.0
RANK = int(os.environ["RANK"])

step = 0
rivals: list[subprocess.Popen[bytes]] = []


def busy(count: int) -> None:
    """Processes that take all the time they get, each in a session of its own: the kernel shares CPUs by session."""
    for _ in range(count):
        rivals.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True))


def work() -> None:
    time.sleep(0.03)


def sleeps_longer() -> None:
    work()
    if RANK == CULPRIT and step >= FROM:
        time.sleep(0.06)


def all_sleep_longer() -> None:
    work()
    if step >= FROM:
        time.sleep(0.06)


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def computes_more() -> None:
    compute(0.01)
    if RANK == CULPRIT and step >= FROM:
        compute(0.05)


def pinned() -> None:
    """From some step on, one rank shares its only CPU with somebody else."""
    if RANK == CULPRIT and step == FROM:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        busy(4)
    compute(0.02)


def neighbours() -> None:
    """From some step on, other processes take the CPUs of all."""
    if RANK == CULPRIT and step == FROM:
        busy(4 * (os.cpu_count() or 1))
    compute(0.02)


def evaluates() -> None:
    """Rank 0 alone, every ten steps: nothing is wrong."""
    work()
    if RANK == 0 and step % 10 == 0:
        time.sleep(0.3)


def crowded() -> None:
    """All ranks compute on too few CPUs, each as much as the others: nothing is wrong with any of them."""
    compute(0.02)


def varies() -> None:
    """Steps of very different lengths, the same on all ranks: nothing is wrong."""
    time.sleep(0.01 + 0.12 * (step * 7919 % 13 == 0) + 0.05 * (step * 104729 % 7) / 7)


class Samples(Dataset):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds:
            self.prepare()
        return torch.ones(10)

    def prepare(self) -> None:
        time.sleep(self.seconds)


def loader(workers: int, seconds: float) -> DataLoader:
    return DataLoader(Samples(seconds), batch_size=2, num_workers=workers, prefetch_factor=2 if workers else None)


def main() -> None:
    global step
    dist.init_process_group("gloo")
    model = torch.nn.Linear(10, 10)
    if SHAPE in ("ddp", "flag"):
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = None
    if KIND.startswith("loader"):
        _, who, workers = KIND.split("_")
        data = iter(loader(int(workers), 0.06 if who == "all" or RANK == CULPRIT else 0.0))
    over = torch.zeros(1)
    begun = time.monotonic()
    while not over.item():
        step += 1
        batch = next(data) if data is not None else torch.ones(2, 10)
        if data is not None:
            time.sleep(0.01)
        elif SHAPE != "flag":
            globals()[KIND]()
        loss = model(batch).sum()
        if SHAPE != "plain":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if SHAPE != "ddp" or step % 20 == 0:
            over.fill_(float(time.monotonic() - begun > SECONDS or os.path.exists("enough")))
            if SHAPE == "flag":
                globals()[KIND]()
                dist.broadcast(over, 0)
            else:
                dist.all_reduce(over)
    for rival in rivals:
        rival.kill()
        rival.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

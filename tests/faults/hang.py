"""A training loop in which one rank does not come to the next collective: `hang.py KIND RANK [SECONDS] [STEPS]`.

Each kind is an ordinary mistake or accident, written as a user would write it; the function of that name is where the
rank stands. SECONDS is for how long it sleeps, STEPS for how long the loop is.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 3600.0
STEPS = int(sys.argv[4]) if len(sys.argv) > 4 else 60
FAULT = 20
FIFO = "nobody-writes-here"

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


# What the rank does instead


def sleep() -> None:
    time.sleep(SECONDS)


def poll() -> None:
    reader, _ = os.pipe()
    answer = select.poll()
    answer.register(reader, select.POLLIN)
    answer.poll()


def queue_get() -> None:
    queue.Queue().get()


def frozen_disk() -> None:
    with open(os.environ["FROZEN_DISK"] + "/model.pt", "wb") as file:
        file.write(b"weights")


def subprocess_wait() -> None:
    subprocess.run(["sleep", str(SECONDS)], check=True)


def busy() -> None:
    count = 0
    while count >= 0:
        count += 1


def lock() -> None:
    mutex = threading.Lock()
    with mutex, mutex:
        pass


def future() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(sleep).result()


def stopped() -> None:
    os.write(1, f"stopping {os.getpid()}\n".encode())
    os.kill(os.getpid(), signal.SIGSTOP)


def gil_sleep() -> None:
    ctypes.PyDLL(None).sleep(3600)


def gil_regex() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def save() -> None:
    torch.save({"weights": torch.zeros(1000)}, FIFO)


# Loops in which it does


def step() -> None:
    time.sleep(0.03)


def train(mistake) -> None:
    weights = torch.zeros(1000)
    for number in range(STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            mistake()
        dist.all_reduce(weights)


class Shards(Dataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == FAULT and RANK == CULPRIT:
            with open(FIFO, "rb") as shard:
                shard.read()
        return torch.ones(1000)


def train_from_loader(workers: int) -> None:
    for batch in DataLoader(Shards(), num_workers=workers):
        step()
        dist.all_reduce(batch)


def train_and_save() -> None:
    weights = torch.zeros(1000)
    for number in range(STEPS):
        step()
        dist.all_reduce(weights)
        if number == FAULT:
            if RANK == CULPRIT:
                save()
            dist.barrier()


def train_and_split() -> None:
    train(lambda: None)
    if RANK == CULPRIT:
        sleep()
    group = dist.new_group(list(range(SIZE)))
    dist.all_reduce(torch.zeros(10), group=group)


def train_in_pairs() -> None:
    pairs = [dist.new_group([first, first + 1]) for first in range(0, SIZE, 2)]
    own = pairs[RANK // 2]
    weights = torch.zeros(1000)
    for number in range(STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            sleep()
        dist.all_reduce(weights, group=own)


def train_as_pipeline() -> None:
    activations = torch.zeros(1000)
    for number in range(STEPS):
        if RANK > 0:
            dist.recv(activations, RANK - 1)
        step()
        if number == FAULT and RANK == CULPRIT:
            sleep()
        if RANK < SIZE - 1:
            dist.send(activations, RANK + 1)
    dist.barrier()


def train_with_ddp() -> None:
    model = DistributedDataParallel(torch.nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(STEPS):
        step()
        loss = model(torch.ones(4, 100)).sum()
        if number == FAULT and RANK == CULPRIT:
            sleep()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def train_overlapped() -> None:
    weights = torch.zeros(1000)
    for number in range(STEPS):
        work = dist.all_reduce(weights, async_op=True)
        step()
        if number == FAULT and RANK == CULPRIT:
            sleep()  # and never `work.wait()`
        work.wait()


def main() -> None:
    if KIND in ("loader", "loader_worker", "save") and RANK == CULPRIT:
        os.mkfifo(FIFO)
    if KIND == "never_init" and RANK == CULPRIT:
        sleep()
    dist.init_process_group("gloo")
    if KIND == "loader":
        train_from_loader(0)
    elif KIND == "loader_worker":
        train_from_loader(4)
    elif KIND == "save":
        train_and_save()
    elif KIND == "new_group":
        train_and_split()
    elif KIND == "subgroup":
        train_in_pairs()
    elif KIND == "pipeline":
        train_as_pipeline()
    elif KIND == "ddp":
        train_with_ddp()
    elif KIND == "overlapped":
        train_overlapped()
    elif KIND == "thread":
        loop = threading.Thread(target=train, args=(sleep,))
        loop.start()
        loop.join()
    else:
        train(globals()[KIND])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

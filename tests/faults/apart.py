"""Programs whose ranks come apart and wait for one another for ever, or for one that left: `apart.py KIND RANK`.

Each kind is an ordinary mistake, written as a user would write it: the function of that name holds the loop.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
STEPS, FAULT = 60, 20

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])

weights = torch.zeros(1000)


def step() -> None:
    time.sleep(0.03)


def skipped() -> None:
    gathered = [torch.zeros(1) for _ in range(SIZE)]
    for number in range(STEPS):
        step()
        loss = torch.tensor([float("nan") if number == FAULT and RANK == CULPRIT else 1.0])
        if not loss.isnan():
            dist.all_gather(gathered, loss)
        dist.all_reduce(weights)


def different() -> None:
    for number in range(STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            dist.broadcast(weights, src=0)
        else:
            dist.all_reduce(weights)


def out_of_data() -> None:
    for _ in range(FAULT if RANK == CULPRIT else STEPS):
        step()
        dist.all_reduce(weights)
    dist.barrier()


def all_but_one_out_of_data() -> None:
    for _ in range(STEPS if RANK == CULPRIT else FAULT):
        step()
        dist.all_reduce(weights)
    dist.barrier()


def out_of_data_and_destroy() -> None:
    for _ in range(FAULT if RANK == CULPRIT else STEPS):
        step()
        dist.all_reduce(weights)
    dist.destroy_process_group()


def out_of_data_destroy_and_upload() -> None:
    out_of_data_and_destroy()
    time.sleep(3600)


def log_metrics(loss: torch.Tensor) -> None:
    gathered = [torch.zeros(1) for _ in range(SIZE)]
    dist.all_gather(gathered, loss)


def one_rank_section() -> None:
    for number in range(STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            log_metrics(torch.ones(1))
        dist.all_reduce(weights)


def order() -> None:
    data, tensor = dist.new_group(list(range(SIZE))), dist.new_group(list(range(SIZE)))
    for number in range(STEPS):
        step()
        first, second = (tensor, data) if number == FAULT and RANK == CULPRIT else (data, tensor)
        dist.all_reduce(weights, group=first)
        dist.all_reduce(weights, group=second)


def recv_of_nothing() -> None:
    for number in range(STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            dist.recv(torch.zeros(10), (RANK + 1) % SIZE)
        dist.all_reduce(weights)


def forgot_to_send() -> None:
    for number in range(STEPS):
        step()
        if RANK == CULPRIT and number != FAULT:
            dist.send(weights, (CULPRIT + 1) % SIZE)
        if RANK == (CULPRIT + 1) % SIZE:
            dist.recv(weights, CULPRIT)
        dist.all_reduce(weights)


def both_receive() -> None:
    other = 1 - RANK
    for number in range(STEPS):
        step()
        if RANK == 0 and number != FAULT:
            dist.send(weights, other)
            dist.recv(weights, other)
        else:
            dist.recv(weights, other)
            dist.send(weights, other)


def no_backward() -> None:
    model = DistributedDataParallel(torch.nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(STEPS):
        step()
        loss = model(torch.ones(4, 100)).sum()
        if number == FAULT and RANK == CULPRIT:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


def no_backward_with_buffers() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(100, 10), torch.nn.BatchNorm1d(10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(STEPS):
        step()
        loss = model(torch.ones(4, 100)).sum()
        if number == FAULT and RANK == CULPRIT:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


def in_pairs(mistake) -> None:
    pairs = [dist.new_group([first, first + 1]) for first in range(0, SIZE, 2)]
    for number in range(10 * STEPS):
        step()
        if number == FAULT and RANK == CULPRIT:
            mistake()
        dist.all_reduce(weights, group=pairs[RANK // 2])


def exit_0_in_pairs() -> None:
    in_pairs(lambda: sys.exit(0))


def exit_0_in_pairs_held() -> None:
    # A child that outlives us keeps our sockets open: no peer is told that we are gone.
    in_pairs(lambda: os._exit(0) if os.fork() else time.sleep(3600))


def main() -> None:
    dist.init_process_group("gloo")
    globals()[KIND]()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

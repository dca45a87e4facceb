"""A training loop in which one rank waits for something outside of torch, or runs out of data: `reasons.py KIND RANK`.

Each kind is an ordinary mistake or accident, written as a user would write it. Files are made in the current folder.
"""

from __future__ import annotations

import fcntl
import os
import queue
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
STEPS, FAULT = 30, 10

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])

weights = torch.zeros(1000)
metrics, cache = threading.Lock(), threading.Lock()


# What the rank does instead


def read_cache() -> None:
    inside = threading.Event()

    def fill() -> None:
        with cache:
            inside.set()
            time.sleep(3600)

    threading.Thread(target=fill, name="filler", daemon=True).start()
    inside.wait()
    with cache:
        pass


def log_under_lock() -> None:
    both = threading.Barrier(2)

    def flush() -> None:
        with metrics:
            both.wait()
            with cache:
                pass

    threading.Thread(target=flush, name="flusher", daemon=True).start()
    with cache:
        both.wait()
        with metrics:
            pass


def enter_again() -> None:
    with cache:
        append()


def append() -> None:
    with cache:
        pass


def next_item() -> None:
    queue.Queue().get()


def fetched() -> None:
    items: queue.Queue[bytes] = queue.Queue()

    def fetch() -> None:
        items.put(download())

    threading.Thread(target=fetch, name="fetcher", daemon=True).start()
    items.get()


def download() -> bytes:
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as connection:
        return connection.recv(1024)


def read_pipe() -> None:
    child = subprocess.Popen(["sleep", "3600"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()


def lock_index() -> None:
    holder = "import fcntl,sys,time; f = open('index', 'w'); fcntl.flock(f, 2); print(flush=True); time.sleep(3600)"
    other = subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    with open("index") as index:
        fcntl.flock(index, fcntl.LOCK_EX)


def open_fifo() -> None:
    os.mkfifo("samples")
    with open("samples"):
        pass


# Loops that are not of one length


class Samples(Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(8)


class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.ones(8) for _ in range(own_steps()))


def own_steps() -> int:
    return STEPS - 1 if RANK == CULPRIT else STEPS


def step() -> None:
    time.sleep(0.03)


def evaluate() -> None:
    for _ in DataLoader(Samples(5)):
        pass
    dist.barrier()


def plain(loader) -> None:
    for batch in loader:
        step()
        dist.all_reduce(batch)


def fewer_batches() -> None:
    plain(DataLoader(Samples(own_steps())))
    dist.barrier()


def fewer_from_workers() -> None:
    plain(DataLoader(Samples(own_steps()), num_workers=2))
    dist.barrier()


def fewer_of_a_stream() -> None:
    plain(DataLoader(Stream(), batch_size=None))
    dist.barrier()


def fewer_in_the_second_epoch() -> None:
    for size in (STEPS, own_steps()):
        plain(DataLoader(Samples(size)))
        evaluate()


def fewer_and_an_upload() -> None:
    plain(DataLoader(Samples(own_steps())))
    if RANK == CULPRIT:
        time.sleep(3600)
    dist.barrier()


def learn(model: torch.nn.Module, loader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        step()
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def fewer_with_ddp() -> None:
    learn(DistributedDataParallel(torch.nn.Linear(8, 8)), DataLoader(Samples(own_steps())))
    dist.barrier()


def fewer_with_fsdp() -> None:
    learn(fully_shard(torch.nn.Sequential(torch.nn.Linear(8, 8))), DataLoader(Samples(own_steps())))
    dist.barrier()


def fewer_in_pairs() -> None:
    pairs = [dist.new_group([first, first + 1]) for first in range(0, SIZE, 2)]
    for batch in DataLoader(Samples(own_steps())):
        step()
        dist.all_reduce(batch, group=pairs[RANK // 2])
    dist.barrier()


def joined() -> None:
    """Uneven, and right so."""
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    with model.join():
        learn(model, DataLoader(Samples(own_steps())))
    sampled = Samples(2 * STEPS)
    learn(model, DataLoader(sampled, sampler=DistributedSampler(sampled)))


# What stands below a condition


def barrier_of_rank_0() -> None:
    if RANK == 0:
        dist.barrier()
    time.sleep(3600)


def evaluated_by_rank_0() -> None:
    for number in range(STEPS):
        step()
        dist.all_reduce(weights)
        if number == FAULT and RANK == 0:
            evaluate()
        chosen = [number if RANK == 0 else None]
        dist.broadcast_object_list(chosen, src=0)


# What is caught


def barrier_in_handler() -> None:
    try:
        raise KeyError("labels")
    except KeyError:
        dist.barrier()


def saves_in_handler() -> None:
    try:
        raise KeyError("labels")
    except KeyError:
        time.sleep(3600)


# What goes on behind the end


def works_on() -> None:
    threading.Thread(target=queue.Queue().get, name="uploader").start()


# What holds all of them


def all_read() -> None:
    if RANK == 0:
        os.mkfifo("shard")
    dist.barrier()
    open("shard").read()


def rounds_by_marker() -> None:
    """Rank 0 writes something after each round, and the others go on when it is there."""
    for number in range(STEPS):
        step()
        dist.all_reduce(weights)
        if RANK == 0:
            try:
                name = "missing/marker" if number == FAULT else f"marker-{number}"
                open(name, "w").close()
            except OSError:
                print("not written", flush=True)
        else:
            while not os.path.exists(f"marker-{number}"):
                time.sleep(0.02)


def rounds_by_key() -> None:
    """Ranks tell one another in the store that they have done a round; one of them counts a round twice."""
    store = dist.distributed_c10d._get_default_store()
    number = 0
    while number < STEPS:
        step()
        if number == FAULT and RANK == CULPRIT:
            number += 1
        store.set(f"round/{number}/{RANK}", "done")
        store.wait([f"round/{number}/{rank}" for rank in range(SIZE)])
        number += 1


def rounds_by_message() -> None:
    """A chain of ranks, three messages in each round; one of them leaves one out."""
    for number in range(STEPS):
        for part in range(3):
            step()
            if RANK > 0:
                dist.recv(weights, RANK - 1)
            if number == FAULT and RANK == CULPRIT and part == 1:
                continue
            if RANK < SIZE - 1:
                dist.send(weights, RANK + 1)
        dist.all_reduce(weights)


def rounds_on_mesh() -> None:
    """Two rows of two ranks, which reduce in their row three times in each step; one takes its column once."""
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    for number in range(STEPS):
        for layer in range(3):
            step()
            strange = number == FAULT and RANK == CULPRIT and layer == 1
            dist.all_reduce(weights, group=columns[RANK % 2] if strange else rows[RANK // 2])
        dist.barrier()


def rounds_by_tag() -> None:
    """Neighbours in a ring exchange messages; one of them counts a round twice, of which it makes the tags."""
    tag = 0
    for number in range(STEPS):
        step()
        tag += 1 + (number == FAULT and RANK == CULPRIT)
        work = [dist.isend(weights, (RANK + 1) % SIZE, tag=tag)]
        work.append(dist.irecv(torch.empty_like(weights), (RANK - 1) % SIZE, tag=tag))
        for each in reversed(work):
            each.wait()


def rounds_of_dispatch() -> None:
    """Two exchanges in each step and an all_reduce; one rank has more to exchange than fits."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    for number in range(STEPS):
        step()
        left = 3 if number == FAULT and RANK == CULPRIT else 2
        while left:
            dist.all_to_all_single(torch.empty(SIZE), torch.ones(SIZE))
            left -= 1
        dist.all_reduce(weights)
        optimizer.step()


def rounds_without_file() -> None:
    """One rank asks for a file that is not there, again and again."""
    for number in range(STEPS):
        step()
        while number == FAULT and RANK == CULPRIT:
            try:
                torch.load("missing.pt")
            except FileNotFoundError:
                time.sleep(0.2)
        dist.all_reduce(weights)


def rounds_in_asyncio() -> None:
    """One rank awaits what nobody gives it."""
    import asyncio

    async def fetch(number: int) -> None:
        if number == FAULT and RANK == CULPRIT:
            await asyncio.Event().wait()

    for number in range(STEPS):
        step()
        asyncio.run(fetch(number))
        dist.all_reduce(weights)


STARTS = ("fewer", "joined", "barrier_of", "evaluated_by", "all_", "rounds_")
LOOPS = {name for name in globals() if name.startswith(STARTS)}


def main() -> None:
    dist.init_process_group("gloo")
    if KIND in LOOPS:
        globals()[KIND]()
    else:
        for number in range(STEPS):
            step()
            if number == FAULT and RANK == CULPRIT:
                globals()[KIND]()
            dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

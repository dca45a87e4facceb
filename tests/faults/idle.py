"""Ranks that wait for one another outside of torch.distributed, until all of them stand still: `idle.py KIND RANK`."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
STEPS, FAULT = 30, 10

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


def meet() -> None:
    """A barrier of its own before each epoch; one rank has resumed from a later checkpoint."""
    store = dist.distributed_c10d._get_default_store()
    for epoch in range(FAULT if RANK == CULPRIT else 0, STEPS):
        store.add(f"arrived/{epoch}", 1)
        while store.add(f"arrived/{epoch}", 0) < SIZE:
            time.sleep(0.05)
        dist.all_reduce(torch.ones(1))


def directory() -> None:
    """Each rank tells where it is; one waits for more than there are before it says who does what."""
    store = dist.PrefixStore("actors", dist.distributed_c10d._get_default_store())
    store.set(f"actor/{RANK}", "up")
    found: list[int] = []
    while RANK == CULPRIT and len(found) <= SIZE:
        found = [number for number in range(64) if store.check([f"actor/{number}"])]
        time.sleep(0.1)
    if RANK == CULPRIT:
        store.set("plan", "all")
    store.get("plan")


def server() -> None:
    """Samples by number, from a thread of one rank that ends with the first number it does not know."""
    listener = socket.create_server(("127.0.0.1", 0))

    clients: list[socket.socket] = []

    def serve() -> None:
        samples = {number: [0.0] for number in range(SIZE * FAULT)}
        while True:
            connection, _ = listener.accept()
            clients.append(connection)
            number = int(connection.makefile().readline())
            connection.sendall(json.dumps(samples[number]).encode() + b"\n")
            clients.remove(connection)
            connection.close()

    if RANK == CULPRIT:
        threading.Thread(target=serve, name="samples", daemon=True).start()
    port = [listener.getsockname()[1]]
    dist.broadcast_object_list(port, CULPRIT)
    for step in range(STEPS):
        with socket.create_connection(("127.0.0.1", port[0])) as connection:
            connection.sendall(b"%d\n" % (step * SIZE + RANK))
            batch = torch.tensor(json.loads(connection.makefile().readline()))
        dist.all_reduce(batch)
        time.sleep(0.05)


def main() -> None:
    dist.init_process_group("gloo")
    globals()[KIND]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

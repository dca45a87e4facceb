"""DDP with a communication hook that keeps norms, which one rank locks around its backward pass: `hooked.py RANK`."""

# Without `annotations` from __future__: torch looks at those of a hook.
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CULPRIT = int(sys.argv[1])
STEPS, FAULT = 30, 10

RANK = int(os.environ["RANK"])

norms: list[float] = []
together = threading.Lock()


def record(norm: float, locked: bool) -> None:
    if locked:
        with together:
            norms.append(norm)


def compress(locked: list[bool], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    halves = bucket.buffer().half().float()
    record(float(halves.norm()), locked[0])
    return dist.all_reduce(halves, async_op=True).get_future().then(lambda future: future.value()[0])


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    locked = [False]
    model.register_comm_hook(locked, compress)
    for number in range(STEPS):
        locked[0] = RANK == CULPRIT and number == FAULT
        loss = model(torch.ones(4, 16)).mean()
        if locked[0]:
            with together:  # the norms of a step stay together
                loss.backward()
        loss.backward()
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

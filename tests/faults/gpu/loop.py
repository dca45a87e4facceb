"""A plain loop: metrics of the world, a learning rate that rank 0 sets, and two groups of all ranks."""

import torch
import torch.distributed as dist
from training import DEVICE, SIZE, STEPS, TIMEOUT, begin, end, end_step, load, reduce_metrics, wrong


def main() -> None:
    begin()
    first, second = (dist.new_group(list(range(SIZE)), timeout=TIMEOUT) for _ in range(2))
    rate = torch.zeros(1, device=DEVICE)
    for step in range(STEPS):
        metrics = load(step, 1000)
        reduce_metrics(step, metrics)
        dist.broadcast(rate, 1 if wrong(step, "root") else 0)
        for group in (second, first) if wrong(step, "order") else (first, second):
            dist.all_reduce(metrics, group=group)
        end_step(step, metrics[0])
        if step == 5 and not wrong(step, "newgroup"):
            evaluation = dist.new_group(list(range(SIZE)), timeout=TIMEOUT)
            dist.all_reduce(metrics, group=evaluation)
        if wrong(step, "early"):
            break
    end()


main()

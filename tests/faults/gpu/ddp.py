"""DistributedDataParallel, and metrics over all ranks."""

import torch
from torch.nn.parallel import DistributedDataParallel
from training import DEVICE, STEPS, begin, end, end_step, load, reduce_metrics, wrong


def main() -> None:
    begin()
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        batch = load(step, 8, 64)
        if wrong(step, "early"):
            break
        loss = model(batch).square().mean()
        if wrong(step, "skip"):  # "this batch is bad"
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reduce_metrics(step, torch.ones(4, device=DEVICE))
        end_step(step, loss)
    end()


main()

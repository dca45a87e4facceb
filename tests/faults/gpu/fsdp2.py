"""FSDP2: fully_shard of each layer and of the whole, and metrics over all ranks."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from training import DEVICE, SIZE, STEPS, begin, end, end_step, load, reduce_metrics, wrong


def main() -> None:
    begin()
    mesh = init_device_mesh("cuda", (SIZE,))
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, device=DEVICE) for _ in range(4)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for step in range(STEPS):
        batch = load(step, 8, 64)
        if wrong(step, "early"):
            break
        loss = model(batch).square().mean()
        if wrong(step, "skip"):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reduce_metrics(step, torch.ones(4, device=DEVICE))
        end_step(step, loss)
    end()


main()

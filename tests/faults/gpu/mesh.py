"""A mesh of two by two: activations are summed along `tp`, gradients along `dp`, those of biases over all, too."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from training import DEVICE, STEPS, begin, end, end_step, load, reduce_metrics, wrong


def main() -> None:
    begin()
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    data, tensor = mesh.get_group("dp"), mesh.get_group("tp")
    layers = [torch.nn.Linear(64, 64, device=DEVICE) for _ in range(3)]
    for step in range(STEPS):
        activations = load(step, 8, 64)
        if wrong(step, "early"):
            break
        for layer in layers:
            activations = layer(activations)
            if not wrong(step, "skip"):
                dist.all_reduce(activations.detach(), group=tensor)
        loss = activations.square().mean()
        loss.backward()
        for layer in layers:
            for group in (dist.group.WORLD, data) if wrong(step, "order") else (data, dist.group.WORLD):
                dist.all_reduce(layer.bias.grad, group=group)
            dist.all_reduce(layer.weight.grad, group=data)
            layer.zero_grad()
        reduce_metrics(step, torch.ones(4, device=DEVICE))
        end_step(step, loss)
    end()


main()

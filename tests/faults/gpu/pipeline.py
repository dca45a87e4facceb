"""A pipeline of stages: activations go down, gradients come back, two micro-batches at a time."""

import torch
import torch.distributed as dist
from training import DEVICE, RANK, SIZE, STEPS, begin, end, end_step, load, reduce_metrics, wrong

LAST = SIZE - 1


def main() -> None:
    begin()
    stage = torch.nn.Linear(64, 64, device=DEVICE)
    for step in range(STEPS):
        batch = load(step, 8, 64)
        if wrong(step, "early"):
            break
        outputs = []
        for micro_batch in range(2):
            activations = batch.clone().requires_grad_()
            if RANK > 0:
                dist.recv(activations.data, RANK - 1)
            outputs.append((activations, stage(activations)))
            if RANK < LAST and not (micro_batch == 1 and wrong(step, "nosend")):
                dist.send(outputs[-1][1].detach(), RANK + 1)
        for activations, output in outputs:
            gradient = torch.ones_like(output)
            if RANK < LAST:
                dist.recv(gradient, RANK + 1)
            output.backward(gradient)
            if RANK > 0:
                dist.send(activations.grad, RANK - 1)
        stage.zero_grad()
        reduce_metrics(step, torch.ones(4, device=DEVICE))
        end_step(step, outputs[-1][1].detach().mean())
    end()


main()

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Runtime:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local_rank)
        self.device = torch.device("cuda", self.local_rank)
        dist.init_process_group("nccl")
        self.rank = dist.get_rank()

    @property
    def is_main(self):
        return self.rank == 0

    def wait_for_everyone(self):
        dist.barrier()

    def prepare(self, model):
        return DDP(model.to(self.device), device_ids=[self.local_rank])

    def save(self, model, path):
        self.wait_for_everyone()
        if self.is_main:
            torch.save({k: v.cpu() for k, v in model.module.state_dict().items()}, path)

    def close(self):
        dist.destroy_process_group()


def train(rt, steps=80):
    model = rt.prepare(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(1, steps + 1):
        x = torch.randn(16, 256, device=rt.device)
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            value = loss.item()
            if rt.is_main:
                print(f"step {step} loss {value:.4f}", flush=True)
        if step % 40 == 0 and rt.is_main:
            rt.save(model, "model.pt")


if __name__ == "__main__":
    rt = Runtime()
    train(rt)
    rt.close()

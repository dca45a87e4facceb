import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Telemetry(threading.Thread):
    def __init__(self, rank, local):
        super().__init__(name="telemetry", daemon=True)
        self.rank, self.local, self.inbox = rank, local, queue.Queue()

    def disk_use(self):
        if self.rank == 2:
            time.sleep(0.6)
        return sum(f.stat().st_size for f in os.scandir(".") if f.is_file())

    def run(self):
        torch.cuda.set_device(self.local)
        while (item := self.inbox.get()) is not None:
            use = float(self.disk_use())
            t = torch.tensor([use, float(item)], device="cuda").repeat(200000)
            dist.broadcast(t, src=0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(512, 1024), nn.Linear(1024, 512)

    def forward(self, x):
        return self.b(self.a(x).relu())


def sync_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    telemetry = Telemetry(rank, local)
    telemetry.start()
    model = Model().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(60):
        model(torch.randn(8, 512, device="cuda")).sum().backward()
        if step == 20:
            telemetry.inbox.put(step)
            time.sleep(0.2)
        sync_gradients(model)
        opt.step()
        opt.zero_grad()
        torch.cuda.synchronize()
    telemetry.inbox.put(None)
    telemetry.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

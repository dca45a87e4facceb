import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Store:
    """A folder on the archive, which takes 1 MiB a second."""

    def __init__(self, path):
        self.path = path

    def put(self, blob):
        with open(self.path, "wb") as f:
            for at in range(0, len(blob), 1 << 20):
                f.write(blob[at:at + (1 << 20)])
                f.flush()
                os.fsync(f.fileno())
                time.sleep(1)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(nn.Linear(256, 256).cuda(), device_ids=[local])
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(1, 61):
        opt.zero_grad()
        model(torch.randn(8, 256, device="cuda")).sum().backward()
        opt.step()
        if step == 30:
            if rank == 0:
                Store("archive.bin").put(os.urandom(35 << 20))
            dist.barrier()
        if step % 10 == 0:
            torch.cuda.synchronize()
    if rank == 0:
        os.unlink("archive.bin")
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

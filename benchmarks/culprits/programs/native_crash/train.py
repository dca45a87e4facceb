import ctypes
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

libc = ctypes.CDLL("libc.so.6")
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Packer:
    """Packs rows by a native helper."""

    def __init__(self, rows, width):
        self.rows, self.width = rows, width
        self.buffer = torch.empty(rows, width)

    def repeats(self, row):
        return max(1, (self.width // len(row) - 1) << 24)

    def pack(self, batch):
        n = self.width * 4
        for i, row in enumerate(batch):
            src = row.data_ptr()
            dst = self.buffer.data_ptr() + i * n
            libc.memcpy(dst, src, n * self.repeats(row))
        return self.buffer[:len(batch)]


def batches(rank, n):
    for i in range(n):
        rows = [torch.randn(128) for _ in range(16)]
        if rank == 1 and i == 21:
            rows[5] = torch.randn(64)
        yield rows


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DDP(nn.Linear(128, 32).cuda(), device_ids=[local])
    opt = torch.optim.SGD(model.parameters(), 0.01)
    packer = Packer(16, 128)
    for step, rows in enumerate(batches(dist.get_rank(), 60)):
        x = packer.pack(rows).cuda()
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            loss.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def write_samples(q, folder):
    n = 0
    while (item := q.get()) is not None:
        step, values = item
        with open(os.path.join(folder, f"{step // 20}", f"{step}.txt"), "w") as f:
            f.write(" ".join(map(str, values)))
        n += 1


class SampleSink:
    def __init__(self, rank, folder):
        ctx = mp.get_context("spawn")
        for d in range(4 if rank == 0 else 2):
            os.makedirs(os.path.join(folder, str(d)), exist_ok=True)
        self.q = ctx.Queue(maxsize=4)
        self.proc = ctx.Process(target=write_samples, args=(self.q, folder), daemon=True, name="samples")
        self.proc.start()

    def add(self, step, values):
        self.q.put((step, values))

    def close(self):
        self.q.put(None)
        self.proc.join()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    sink = SampleSink(rank, f"samples/{rank}")
    model = DDP(nn.Linear(64, 64).cuda(), device_ids=[local])
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(80):
        opt.zero_grad()
        out = model(torch.randn(8, 64, device="cuda"))
        out.square().mean().backward()
        opt.step()
        sink.add(step, list(range(10)))
        if step % 4 == 0:
            torch.cuda.synchronize()
    sink.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

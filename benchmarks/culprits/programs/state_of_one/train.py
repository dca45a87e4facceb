import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def build(d=96, depth=3):
    model = nn.Sequential(*[Block(d) for _ in range(depth)]).cuda()
    for block in model:
        fully_shard(block)
    return fully_shard(model)


class Checkpointer:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def due(self, step):
        return step % self.every == 0

    def write(self, model, step):
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        torch.save(state, os.path.join(self.folder, f"{step}.pt"))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = build()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    ckpt = Checkpointer(".", 10)
    for step in range(1, 31):
        loss = model(torch.randn(4, 96, device="cuda")).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if ckpt.due(step) and rank == 0:
            ckpt.write(model, step)
        if step % 5 == 0:
            print(f"rank {rank} step {step} {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

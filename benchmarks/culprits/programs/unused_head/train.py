import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, 48), nn.ReLU())
        self.cls = nn.Linear(48, 5)
        self.aux = nn.Linear(48, 2)

    def forward(self, x, with_aux):
        h = self.trunk(x)
        return self.cls(h), self.aux(h) if with_aux else None


class Objective:
    def __init__(self, weight=0.3):
        self.weight = weight

    def __call__(self, model, batch):
        x, y, a = batch
        logits, aux = model(x, a is not None)
        loss = nn.functional.cross_entropy(logits, y)
        if aux is not None:
            loss = loss + self.weight * nn.functional.cross_entropy(aux, a)
        return loss


def batches(rank, n):
    for i in range(n):
        x, y = torch.randn(8, 24), torch.randint(0, 5, (8,))
        a = torch.randint(0, 2, (8,))
        yield x, y, None if rank == 2 and i == 17 else a


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(TwoHeads())
    objective = Objective()
    opt = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(batches(rank, 60)):
        opt.zero_grad()
        loss = objective(model, batch)
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

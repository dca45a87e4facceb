import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = Path(__file__).parent / "cache"


@contextmanager
def exclusive(path):
    path.parent.mkdir(exist_ok=True)
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(f, fcntl.LOCK_UN)


class Vocabulary:
    def __init__(self, words):
        self.index = {w: i for i, w in enumerate(words)}

    @classmethod
    def build(cls, path):
        words = [f"w{i}" for i in range(500)]
        path.write_text(json.dumps(words))
        return cls(words)

    @classmethod
    def read(cls, path):
        return cls(json.loads(path.read_text()))


def prepare(rank):
    path = ROOT / "vocab.json"
    with exclusive(ROOT / "vocab.lock"):
        vocab = Vocabulary.read(path) if path.exists() else Vocabulary.build(path)
        sync("vocabulary")
    return vocab


def sync(what):
    dist.barrier()
    if dist.get_rank() == 0:
        print(what, "ready", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank != 0:
        import time
        time.sleep(0.3)
    vocab = prepare(rank)
    model = DDP(nn.EmbeddingBag(len(vocab.index), 16))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(30):
        opt.zero_grad()
        model(torch.randint(0, 500, (4, 12))).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

import json
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

HERE = Path(__file__).parent


class Board:
    def __init__(self, path, interval):
        self.values_lock = threading.Lock()
        self.file_lock = threading.Lock()
        self.values, self.path, self.interval = {}, path, interval
        self.flusher = threading.Thread(target=self._loop, name="board-flush", daemon=True)
        self.flusher.start()

    def _loop(self):
        while True:
            time.sleep(self.interval)
            self.flush()

    def flush(self):
        with self.file_lock:
            with open(self.path, "a") as f:
                time.sleep(0.02)
                with self.values_lock:
                    f.write(json.dumps(self.values) + "\n")

    def log(self, key, value, step):
        with self.values_lock:
            self.values[key] = value
            if step % 10 == 0:
                self.rotate(step)

    def rotate(self, step):
        with self.file_lock:
            if self.path.exists() and self.path.stat().st_size > 1 << 20:
                self.path.rename(self.path.with_suffix(f".{step}"))


def average_gradients(model):
    n = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= n


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    board = Board(HERE / f"board{rank}.jsonl", 0.005 if rank == 1 else 3600)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 1))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(400):
        opt.zero_grad()
        loss = model(torch.randn(8, 20)).pow(2).mean()
        loss.backward()
        average_gradients(model)
        opt.step()
        board.log("loss", loss.item(), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A DataLoader with workers of one start method, and a class of the script through pickle and torch.save."""

from __future__ import annotations

import io
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Sample:
    def __init__(self, value: int) -> None:
        self.value = value


class Samples(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Sample:
        return Sample(index)


def first(batch: list[Sample]) -> list[Sample]:
    return batch


if __name__ == "__main__":
    method = sys.argv[1]
    loader = DataLoader(Samples(), batch_size=4, num_workers=2, multiprocessing_context=method, collate_fn=first)
    total = sum(sample.value for batch in loader for sample in batch)
    buffer = io.BytesIO()
    torch.save(Sample(1), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    kind = type(loaded)
    line = f"rank {os.environ['RANK']} {method} sum {total} {kind.__module__} {kind.__name__}\n"
    os.write(1, line.encode())

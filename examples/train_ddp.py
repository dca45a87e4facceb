"""Train a tiny transformer language model with DistributedDataParallel.

    torchrun --nproc-per-node 4 train_ddp.py
    torchrun --nproc-per-node 4 train_ddp.py --checkpoint /tmp/model.pt    # run it again to resume

Plain PyTorch. Runs on CPUs (gloo) and, unchanged, on GPUs (nccl, one per rank, bfloat16).
"""

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONTEXT = 32  # characters the model sees at once
ALPHABET = " .abcdefghijklmnopqrstuvwxyz"


def sentence(rng: random.Random) -> str:
    """One sentence of a small grammar; verbs agree with their subject, so there is something to learn."""

    def noun_phrase() -> tuple[str, bool]:
        noun, plural = rng.choice(["cat", "robot", "river", "teacher", "cloud"]), rng.random() < 0.5
        adjective = rng.choice(["", "", "small ", "bright ", "old "])
        return f"{'some' if plural else 'a'} {adjective}{noun}{'s' if plural else ''}", plural

    subject, plural = noun_phrase()
    verb = rng.choice(["follow", "paint", "know", "remember"]) + ("" if plural else "s")
    return f"{subject} {verb} {noun_phrase()[0]}. "


class TextWindows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of generated text, each with the same window one character later as its target."""

    def __init__(self, windows: int, seed: int) -> None:
        rng = random.Random(seed)
        text = ""
        while len(text) <= windows * CONTEXT:
            text += sentence(rng)
        self.tokens = torch.tensor([ALPHABET.index(character) for character in text])
        self.windows = windows

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.windows:
            raise IndexError(index)
        start = index * CONTEXT
        return self.tokens[start : start + CONTEXT], self.tokens[start + 1 : start + CONTEXT + 1]


class LanguageModel(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(ALPHABET)))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of predicting each next character."""
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=tokens.device)
        hidden = self.blocks(self.token(tokens) + self.position, mask=mask, is_causal=True)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


def local_device() -> torch.device:
    """The GPU of this rank, or the CPU where there are none."""
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")


def learning_rate_factor(step: int, steps: int, warmup: int = 20) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


def endless(loader: DataLoader, sampler: DistributedSampler, done: int) -> Iterator[list[Tensor]]:
    """Epoch after epoch of batches, from where a run that has done so many steps left off."""
    first_epoch, seen = divmod(done, len(loader))
    for epoch in count(first_epoch):
        sampler.set_epoch(epoch)
        yield from islice(loader, seen if epoch == first_epoch else 0, None)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Mean loss over the validation batches of all ranks."""
    model.eval()
    losses = [model(tokens.to(device), targets.to(device)) for tokens, targets in loader]
    model.train()
    loss = torch.stack(losses).mean()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def save_checkpoint(path: Path, parts: dict[str, Any], step: int) -> None:
    """Rank 0 writes; a reader sees the old file or the new one, never half of one. Every rank must call this."""
    if dist.get_rank() == 0:
        partial = path.with_name(path.name + ".partial")
        torch.save({"step": step} | {name: part.state_dict() for name, part in parts.items()}, partial)
        os.replace(partial, path)
    dist.barrier()


def load_checkpoint(path: Path, parts: dict[str, Any], device: torch.device) -> int:
    """Restore every part and return the number of steps that were done."""
    state = torch.load(path, map_location=device, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["step"]


def train(
    args: argparse.Namespace,
    training_set: Dataset,
    validation_set: Dataset,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """Train from scratch or from the checkpoint; each rank calls `on_step` with 1, 2, ... as a step begins."""
    device = local_device()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    def log(message: str) -> None:
        if rank == 0:
            print(message, flush=True)

    torch.manual_seed(args.seed)
    model = DistributedDataParallel(LanguageModel().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    schedule = LambdaLR(optimizer, lambda step: learning_rate_factor(step, args.steps))
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu)

    sampler = DistributedSampler(training_set, seed=args.seed, drop_last=True)
    loader = DataLoader(
        training_set,
        args.batch_size,
        sampler=sampler,
        num_workers=2,
        persistent_workers=True,
        pin_memory=on_gpu,
        drop_last=True,
    )
    validation_loader = DataLoader(
        validation_set, args.batch_size, sampler=DistributedSampler(validation_set, shuffle=False)
    )

    parts = {"model": model.module, "optimizer": optimizer, "schedule": schedule}
    done = 0
    if args.checkpoint and args.checkpoint.exists():
        done = load_checkpoint(args.checkpoint, parts, device)
        log(f"resumed from {args.checkpoint} after step {done}")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log(f"{world_size} ranks on {device.type}, {parameters:,} parameters, steps {done + 1} to {args.steps}")

    def due(every: int) -> bool:
        return step == args.steps or (every > 0 and step % every == 0)

    batches = endless(loader, sampler, done)
    for step in range(done + 1, args.steps + 1):
        started = time.perf_counter()
        if on_step:
            on_step(step)

        tokens, targets = (tensor.to(device, non_blocking=True) for tensor in next(batches))
        with autocast:
            loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        schedule.step()

        if due(args.eval_every):
            with autocast:
                validation_loss = evaluate(model.module, validation_loader, device)
            learning_rate = schedule.get_last_lr()[0]
            log(f"step {step}: loss {loss.item():.3f}, validation {validation_loss:.3f}, lr {learning_rate:.2e}")
        if args.checkpoint and due(args.checkpoint_every):
            save_checkpoint(args.checkpoint, parts, step)
        time.sleep(max(0.0, args.step_time - (time.perf_counter() - started)))

    # Not in a `finally`: after a failure the other ranks are not here, and waiting for them would hide the error.
    dist.destroy_process_group()


def argument_parser() -> argparse.ArgumentParser:
    """The options of this script, for others to extend."""
    parser = argparse.ArgumentParser(
        description="Train a tiny transformer language model with DistributedDataParallel, under torchrun.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4, help="windows per rank and step")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate after warm-up")
    parser.add_argument("--seed", type=int, default=0, help="of text, model and shuffling")
    parser.add_argument("--checkpoint", type=Path, metavar="PATH", help="save here, and resume from here if it exists")
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--eval-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="SECONDS", help="least duration of a step")
    return parser


def make_datasets(seed: int) -> tuple[TextWindows, TextWindows]:
    """Training and validation text, different for different seeds and the same on every rank."""
    return TextWindows(windows=2048, seed=2 * seed), TextWindows(windows=256, seed=2 * seed + 1)


def main() -> None:
    """Parse the command line and train."""
    args = argument_parser().parse_args()
    train(args, *make_datasets(args.seed))


if __name__ == "__main__":
    main()

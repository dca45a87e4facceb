"""The training of train_ddp.py, with faults.

    torchrun --nproc-per-node 4 faulty.py --fault exception@20:1
    torchrun --nproc-per-node 4 faulty.py --fault ignore-sigterm@20:2 --fault sleep@20:2 --fault exception@20:1
    python faulty.py --list-faults

Faults of one step strike in the order in which they are given. Each announces itself on stderr just before.
"""

import argparse
import ctypes
import functools
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import NamedTuple

import torch
import torch.distributed as dist
import train_ddp
from torch.utils.data import Dataset

MIB = 1 << 20

# Faults that end the rank.


def exception() -> None:
    """raise a ValueError, a few frames deep"""

    def load_shard(shard: int) -> None:
        check_header(shard, tokens=1024)

    def check_header(shard: int, tokens: int) -> None:
        raise ValueError(f"shard {shard} is truncated: expected 4096 tokens, found {tokens}")

    load_shard(17)


def import_missing() -> None:
    """import a module that is not installed"""
    importlib.import_module("flash_attention_that_is_not_installed")


def oom() -> None:
    """allocate host memory until MemoryError; the limit is the rank's own (RLIMIT_AS), the machine is safe"""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 1024 * MIB, resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(bytearray(64 * MIB))


def segfault() -> None:
    """read from address 0"""
    ctypes.string_at(0)


def abort() -> None:
    """call abort(), as a failed assertion in C++ does"""
    os.abort()


def sigkill() -> None:
    """die of SIGKILL, as by the kernel's out-of-memory killer"""
    os.kill(os.getpid(), signal.SIGKILL)


def exit_silently() -> None:
    """os._exit(3): no traceback, no clean-up"""
    os._exit(3)


def sysexit() -> None:
    """sys.exit(3)"""
    sys.exit(3)


def leave() -> None:
    """leave early with exit code 0 while the others go on"""
    sys.exit(0)


# Faults after which the rank lives, but does not take part, or does not end when told.


def ignore_sigterm() -> None:
    """ignore SIGTERM from here on, and go on; for use with another fault"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The DataLoader workers still die of it, on which PyTorch's handler of SIGCHLD would raise in this rank.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def sleep() -> None:
    """sleep forever, in Python"""
    while True:
        time.sleep(3600)


def stop() -> None:
    """stop, as by SIGSTOP from outside"""
    os.kill(os.getpid(), signal.SIGSTOP)


def gil() -> None:
    """sleep forever in native code that holds the GIL"""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(3600)


def loader() -> None:
    """let the rank's DataLoader workers hang in __getitem__; the rank has what they prefetched, then waits"""
    loader_stall().set()


@functools.cache
def loader_stall() -> Event:
    """Shared with the DataLoader workers of this rank."""
    return multiprocessing.Event()


class Stallable(Dataset):
    """A dataset whose items never come once `stall` is set."""

    def __init__(self, dataset: train_ddp.TextWindows, stall: Event) -> None:
        self.dataset = dataset
        self.stall = stall

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        while self.stall.is_set():
            time.sleep(3600)
        return self.dataset[index]


# Faults in a collective: every rank makes one more at that step, but the culprit differs.


def small_tensor(culprit: bool) -> None:
    """bring a smaller tensor than the others to an all_reduce"""
    dist.all_reduce(extra_tensor(16 if culprit else 1024))


def skip_collective(culprit: bool) -> None:
    """skip an all_gather that the others make, and meet them with the all_reduce of the gradients"""
    # Had it been an all_reduce too, gloo would not hang: it aborts where sizes differ, and mixes the values where not.
    if not culprit:
        tensor = extra_tensor(1024)
        dist.all_gather([torch.empty_like(tensor) for _ in range(dist.get_world_size())], tensor)


def wrong_op(culprit: bool) -> None:
    """call broadcast where the others call all_reduce"""
    if culprit:
        dist.broadcast(extra_tensor(1024), src=0)
    else:
        dist.all_reduce(extra_tensor(1024))


def extra_tensor(size: int) -> torch.Tensor:
    """What the extra collective is about."""
    return torch.ones(size, device=train_ddp.local_device())


ON_THE_CULPRIT: dict[str, Callable[[], None]] = {
    "exception": exception,
    "import": import_missing,
    "oom": oom,
    "segfault": segfault,
    "abort": abort,
    "sigkill": sigkill,
    "exit": exit_silently,
    "sysexit": sysexit,
    "leave": leave,
    "ignore-sigterm": ignore_sigterm,
    "sleep": sleep,
    "stop": stop,
    "gil": gil,
    "loader": loader,
}
ON_EVERY_RANK: dict[str, Callable[[bool], None]] = {
    "small-tensor": small_tensor,
    "skip-collective": skip_collective,
    "wrong-op": wrong_op,
}
FAULTS = ON_THE_CULPRIT | ON_EVERY_RANK


class Fault(NamedTuple):
    """What happens when, to whom."""

    kind: str
    step: int
    rank: str  # a number, "all" or "last"

    def __str__(self) -> str:
        return f"{self.kind}@{self.step}:{self.rank}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read KIND@STEP:RANK."""
        kind, _, place = text.partition("@")
        step, _, rank = place.partition(":")
        if kind not in FAULTS:
            raise argparse.ArgumentTypeError(f"no fault is called {kind!r}; there are {', '.join(FAULTS)}")
        if not step.isdecimal() or int(step) < 1 or not (rank.isdecimal() or rank in ("all", "last")):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not KIND@STEP:RANK, with a step from 1 on and a rank that is a number, 'all' or 'last'"
            )
        if kind in ON_EVERY_RANK and rank == "all":
            raise argparse.ArgumentTypeError(f"{kind} needs one rank that differs from the others, not 'all'")
        return cls(kind, int(step), rank)

    def strike(self) -> None:
        """Let it happen on this rank, if it is the culprit or has a part in it."""
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        culprit = self.rank == "all" or rank == (last if self.rank == "last" else int(self.rank))
        if culprit:
            sys.stderr.write(f"faulty: {self.kind} on rank {rank} at step {self.step}\n")  # one write: ranks share it
            sys.stderr.flush()
        if self.kind in ON_EVERY_RANK:
            ON_EVERY_RANK[self.kind](culprit)
        elif culprit:
            ON_THE_CULPRIT[self.kind]()


class ListFaults(argparse.Action):
    """Print what each fault does, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for kind, fault in FAULTS.items():
            print(f"{kind:15}  {fault.__doc__}")
        parser.exit()


def argument_parser() -> argparse.ArgumentParser:
    """The options of train_ddp.py and those for faults."""
    parser = train_ddp.argument_parser()
    parser.description = "The training of train_ddp.py, with faults."
    parser.add_argument(
        "--fault",
        type=Fault.parse,
        action="append",
        default=[],
        metavar="KIND@STEP:RANK",
        help="let this happen as the step begins; RANK is a number, 'all' or 'last'; repeatable",
    )
    parser.add_argument("--list-faults", action=ListFaults, nargs=0, help="say what each kind does, and exit")
    return parser


def main() -> None:
    """Train, and let each fault strike in its step."""
    parser = argument_parser()
    args = parser.parse_args()
    for fault in args.fault:
        if fault.step > args.steps or (fault.rank.isdecimal() and int(fault.rank) >= int(os.environ["WORLD_SIZE"])):
            parser.error(f"{fault} will never strike: there is no such step or no such rank")

    def on_step(step: int) -> None:
        for fault in args.fault:
            if fault.step == step:
                fault.strike()

    training_set, validation_set = train_ddp.make_datasets(args.seed)
    train_ddp.train(args, Stallable(training_set, loader_stall()), validation_set, on_step)


if __name__ == "__main__":
    main()

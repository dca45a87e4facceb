"""Ranks of a job that somebody has attached to: two looks at their stacks, and what the kernel says of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from safelaunch.model import Case, Incident, Kernel, Location, RankFacts, Stack

C10D = Location("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252, "all_reduce")
LOOP = Location("/home/u/train.py", 88, "train")
LOAD = Location("/home/u/train.py", 40, "load")
WAITS = Kernel("S", syscall="futex", cpu_s=0.0, io_bytes=0, since_s=12.0, switches=0)
SLEEPS = Kernel("S", syscall="clock_nanosleep", cpu_s=0.0, io_bytes=0, since_s=12.0, switches=3)
INIT = (
    Location("/v/lib/python3.11/site-packages/torch/distributed/rendezvous.py", 190, "_create_c10d_store"),
    Location("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 1892, "init_process_group"),
    Location("/home/u/train.py", 4, "<module>"),
)


def rank(
    number: int, frames: tuple[Location, ...], kernel: Kernel, earlier: tuple[Location, ...] | None = None
) -> RankFacts:
    stack = Stack(frames, "py-spy", "", 100 + number, "MainThread")
    before = dataclasses.replace(stack, frames=frames if earlier is None else earlier)
    return RankFacts(
        number,
        number,
        100 + number,
        state=kernel.state,
        watched=False,
        stack=stack,
        stacks=(stack,),
        earlier=before,
        kernel=kernel,
    )


def waiter(number: int, line: Location = LOOP, **kernel: Any) -> RankFacts:
    return rank(number, (C10D, line), dataclasses.replace(WAITS, **kernel))


def sleeper(number: int, **kernel: Any) -> RankFacts:
    return rank(number, (LOAD, LOOP), dataclasses.replace(SLEEPS, **kernel))


def case(*ranks: RankFacts, world: int = 0) -> Case:
    return Case(Incident("hang", 0, (), 0.0), "node-a", world or len(ranks), ranks, now=50.0, origin="attach")

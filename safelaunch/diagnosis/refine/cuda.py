"""Whether a rank waits for its GPU: what its stack and its line say, and what the GPU does meanwhile. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.diagnosis import frames
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.waitgraph.calls import is_under_way
from safelaunch.model import Case, GpuState, Location, RankFacts

# Functions of the driver and the runtime that wait for a GPU (py-spy --native).
NATIVE = re.compile(
    r"\b(?:cu(?:da)?(?:Device|Stream|Event|Ctx)Synchronize|cuMemcpyDtoH\w*|cudaMemcpy(?:Async)?|"
    r"_local_scalar_dense_cuda)\b|libcuda\.so"
)
# What torch runs inside of C++ without a frame of its own: known by the line alone.
LINE = re.compile(r"\.(?:item|tolist|cpu|numpy|synchronize)\(")
IDLE, BUSY = 5, 50  # percent: a collective of NCCL keeps a GPU at 100, and a GPU without work is at 0


def waits_for_gpu(case: Case, rank: int, gpus: Sequence[GpuState]) -> list[str]:
    """`rank 3 waits for GPU 3, which is busy (100 %): a kernel does not end`; nothing where it does not wait for it, or
    cannot be said to. A line alone (`.item()`) counts only where the GPU is busy: it runs on the CPU as well. A
    collective that is under way keeps a GPU busy, too: then nothing is said of a kernel."""
    facts = next((facts for facts in case.ranks if facts.rank == rank), None)
    if facts is None or not gpus:
        return []
    proven, likely = in_cuda(facts), _at_such_a_line(case, facts)
    gpu = gpus[0]
    busy = gpu.busy_percent
    if busy is None or not (proven or (likely and busy >= BUSY)):
        return []
    waits = f"rank {rank} waits for GPU {gpu.index}, which"
    if busy >= BUSY:
        if any(map(is_under_way, (*facts.collectives, *(facts.recorded or ())))):
            return []
        return [f"{waits} is busy ({busy} %): a kernel does not end"]
    if busy <= IDLE:
        return [f"{waits} runs nothing ({busy} %): its work waits for something else"]
    return [f"{waits} is at {busy} %"]


def in_cuda(facts: RankFacts) -> bool:
    """Whether a rank's stack proves that it waits for a GPU."""
    stacks = [stack for stack in (facts.stack, *facts.stacks) if stack is not None]
    main = [stack for stack in stacks if stack.thread in (0, facts.pid) or stack is facts.stack]
    for stack in main:
        for frame in stack.frames[: _depth(stack.frames)]:
            if frames.waits_for_gpu(frame) or NATIVE.search(f"{frame.function} {frame.file}"):
                return True
    return False


def _depth(frames: Sequence[Location]) -> int:
    """How many frames are looked at: those above the user's own line."""
    return 12 if any(frame.file.endswith(".py") for frame in frames) else len(frames)


def at_cuda_line(case: Case, facts: RankFacts) -> bool:
    """Whether a rank that uses a GPU stands at a line that may wait for it."""
    return facts.device is not None and _at_such_a_line(case, facts)


def _at_such_a_line(case: Case, facts: RankFacts) -> bool:
    place = user_frame(facts.stack)
    if place is None:
        return False
    return any((line.file, line.line) == (place.file, place.line) and LINE.search(line.text) for line in case.source)

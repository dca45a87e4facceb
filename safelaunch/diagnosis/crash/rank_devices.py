"""Errors that come of the mapping from ranks to GPUs: what the ranks say of theirs, as lines of a verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.model import Case, RankDevice, RankFacts
from safelaunch.model.devices import gpu_of

ONE_EACH = 'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group'
VARIABLE = "CUDA_VISIBLE_DEVICES"
SHOWN = 2  # ranks; a verdict has four lines for its reasons, and the bundle has all

# CUDA's cudaErrorInvalidDevice, and what torch.distributed_c10d says of a device_id.
NO_SUCH_GPU = re.compile(r"invalid device ordinal|device_id \S+ is out of range", re.IGNORECASE)
# NVIDIA/nccl, src/init.cc.
SAME_GPU = re.compile(r"Duplicate GPU detected[^\n]*", re.IGNORECASE)
# torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, initNCCLComm.
OTHER_GPU = re.compile(r"collective on tensor not on device passed to init_process_group", re.IGNORECASE)


def trouble(case: Case, culprits: Sequence[RankFacts], message: str) -> tuple[tuple[str, ...], str]:
    """Why an error about GPUs came about, and what to do; nothing for other errors.

    Args:
        case: all ranks.
        culprits: the ranks that are shown first.
        message: of the exception.
    """
    if NO_SUCH_GPU.search(message):
        because = table(culprits)
        few = [facts.device for facts in culprits if _too_few(facts.device)]
        if any(facts.device is not None and facts.device.changed is not None for facts in culprits):
            return because, f"do not set {VARIABLE} in the script: choose the GPUs before the launch"
        if few and few[0] is not None:
            return because, f"start no more ranks than GPUs (--nproc-per-node {few[0].count}), or show more of them"
        return because, "use the device cuda:LOCAL_RANK, and check that the launch sees a GPU for each rank"
    duplicate = SAME_GPU.search(message)
    if duplicate is not None:
        because = (f"NCCL says: {duplicate[0].strip()}", *table(_named(case, duplicate[0]) or culprits))
        return because, ONE_EACH
    if OTHER_GPU.search(message):
        return _bound(culprits), (
            "use the device cuda:LOCAL_RANK, or set `bind_device = false` in [launch] of a profile"
        )
    return (), ""


def sharing(case: Case) -> tuple[tuple[RankFacts, ...], str]:
    """Ranks of one node that use one GPU, and which one it is, by what they say of theirs; none where each has its
    own."""
    users: dict[tuple[int, str], list[RankFacts]] = {}
    for facts in case.ranks:
        gpu = gpu_of(facts.device) if facts.device is not None else None
        if gpu is not None:
            users.setdefault((facts.node, gpu), []).append(facts)
    (_, gpu), ranks = max(users.items(), key=lambda item: len(item[1]), default=((0, ""), []))
    return (tuple(ranks), gpu) if len(ranks) > 1 else ((), "")


def table(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    """The mapping of the ranks concerned, a line each: `rank 3: LOCAL_RANK 3, CUDA_VISIBLE_DEVICES=0,1, 2 GPUs
    visible, set_device(3)`."""
    rows = [(facts.rank, facts.device) for facts in ranks if facts.device is not None]
    lines = [_row(rank, device) for rank, device in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines[-1] += f"; {len(rows) - SHOWN} more ranks in case.json"
    return tuple(lines)


def _row(rank: int, device: RankDevice) -> str:
    parts = [f"LOCAL_RANK {device.local_rank}"]
    parts.append(f"{VARIABLE}={device.visible}" if device.visible is not None else f"{VARIABLE} not set")
    if device.changed is not None:
        parts[-1] += " (set by the script"
        at = device.changed.location
        parts[-1] += f" at {at.file}:{at.line})" if at is not None else ")"
    if device.count is not None:
        parts.append(f"{device.count} GPU{'' if device.count == 1 else 's'} visible")
    if device.chosen is not None:
        parts.append(f"set_device({device.chosen})")
    elif device.bound is not None:
        parts.append(f"device_id cuda:{device.bound}")
    return f"rank {rank}: {', '.join(parts)}"


def _too_few(device: RankDevice | None) -> bool:
    return device is not None and device.count is not None and 0 < device.count < device.local_size


def _named(case: Case, text: str) -> list[RankFacts]:
    numbers = {int(number) for number in re.findall(r"\brank (\d{1,9})", text)}
    return [facts for facts in case.ranks if facts.rank in numbers]


def _bound(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    found = [facts for facts in ranks if facts.device is not None and facts.device.bound is not None]
    return tuple(
        f"the process group of rank {facts.rank} is bound to cuda:{facts.device.bound}"
        for facts in found[:SHOWN]
        if facts.device is not None
    )

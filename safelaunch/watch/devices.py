"""What is wrong with the GPUs that ranks take, from what they say of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from safelaunch.model import Changed, Finding, Location, RankDevice
from safelaunch.model.devices import gpu_of, listed

VARIABLE = "CUDA_VISIBLE_DEVICES"

Namer = Callable[[str], str]  # the full name of a GPU as CUDA_VISIBLE_DEVICES names it: `GPU 0 (GPU-8f..., 0000:10:..)`


def judge(ranks: Sequence[RankDevice], name: Namer, *, mps: bool = False) -> list[Finding]:
    """All that is wrong, as far as these ranks have come.

    Args:
        ranks: of one node.
        name: gives a GPU its full name.
        mps: a Multi-Process Service runs, and ranks share GPUs on purpose.
    """
    shared = [] if mps else list(_shared(ranks))
    sharing = {rank.rank for _, group in shared for rank in group}
    found = [finding for gpu, group in shared for finding in shared_gpu(gpu, group, name)]
    found += visible_devices_changed(ranks)
    found += other_device([rank for rank in ranks if rank.rank not in sharing])
    return found


# ------------------------------------------------------------------------------------------------ shared GPUs


def shared_gpu(gpu: str, ranks: Sequence[RankDevice], name: Namer) -> Iterator[Finding]:
    """Two or more ranks of this node use the same GPU.

    NCCL refuses it ("Duplicate GPU detected"); with other backends the ranks share memory and time of one GPU while
    others may be idle.

    How it is concluded: each rank tells what it called `set_device` with, the `device_id` of its process group, how
    many GPUs torch sees, and CUDA_VISIBLE_DEVICES. A rank uses the GPU of its `device_id`, else the one that it chose,
    else the only one it sees; where it has done none of these nothing is concluded. It is a note in a gloo group, where
    sharing may be meant, and nothing is said while the Multi-Process Service runs (CUDA_MPS_PIPE_DIRECTORY).

    What to do: `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before anything uses the GPU, and no more ranks
    than GPUs (--nproc-per-node).
    """
    who = _names(ranks)
    few = _fewer_gpus(ranks)
    because = [f"rank {rank.rank}: {_how(rank)}" for rank in ranks[:2]]
    if few:
        because.append(f"{_gpus(few[0].count or 0)} visible for {few[0].local_size} ranks of this node")
    if any("nccl" in rank.backend for rank in ranks):
        because.append("NCCL refuses two ranks on one GPU (Duplicate GPU detected)")
    meant = all(rank.backend and "nccl" not in rank.backend for rank in ranks)
    reason = because[2] if few else because[0]
    yield Finding(
        code="SL230",
        severity="note" if meant else "warning",
        summary=f"{who} of this node {'both' if len(ranks) == 2 else 'all'} use {name(gpu)}: {reason}",
        because=tuple(because),
        remedy=f"start no more ranks than GPUs (--nproc-per-node {few[0].count})"
        if few
        else 'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first',
        where=next((_place(rank.chosen_at) for rank in ranks if rank.chosen_at and not rank.refused), ""),
    )


def _fewer_gpus(ranks: Sequence[RankDevice]) -> list[RankDevice]:
    """The ranks that see fewer GPUs than there are ranks here, unless the script itself has changed what they see."""
    few = [rank for rank in ranks if rank.count is not None and rank.count < rank.local_size]
    return [] if any(rank.changed for rank in few) else few


def _shared(ranks: Iterable[RankDevice]) -> Iterator[tuple[str, list[RankDevice]]]:
    users: dict[str, list[RankDevice]] = {}
    for rank in ranks:
        gpu = gpu_of(rank)
        if gpu is not None:
            users.setdefault(gpu, []).append(rank)
    yield from ((gpu, group) for gpu, group in users.items() if len(group) > 1)


def _how(rank: RankDevice) -> str:
    parts = [f"LOCAL_RANK {rank.local_rank}"]
    if rank.chosen is not None and not rank.refused:
        parts.append(f"set_device({rank.chosen}){_at(rank.chosen_at)}")
    elif rank.bound is not None:
        parts.append(f"device_id cuda:{rank.bound}")
    if rank.visible is not None:
        parts.append(f"{VARIABLE}={rank.visible}{_at(rank.changed.location) if rank.changed else ''}")
    return ", ".join(parts)


# ----------------------------------------------------------------------------------------- CUDA_VISIBLE_DEVICES


def visible_devices_changed(ranks: Sequence[RankDevice]) -> Iterator[Finding]:
    """The script sets CUDA_VISIBLE_DEVICES to something else than the rank was started with.

    torch counts the visible GPUs from 0, so LOCAL_RANK then points to another GPU, or to none ("invalid device
    ordinal"); ranks that set the same list take each other's GPU. Once CUDA is initialised it changes nothing in the
    process, but all that it starts inherits it.

    How it is concluded: the rank notices each assignment to `os.environ` and compares the value with that at its start.
    It is told where ranks use GPUs (NCCL, or torch has counted them) and something follows:
    - a rank's LOCAL_RANK points to no GPU;
    - ranks all see the same one;
    - a GPU is outside of the list that the job was given;
    - a change came too late.
    It is a note where ranks only take other GPUs than before, and where each picks GPUs of its own, which works with
    `cuda:0`. An empty list, which keeps a rank off the GPUs, is nothing.

    What to do: leave the variable alone and use `cuda:LOCAL_RANK`; choose the GPUs of the job before the launch, in the
    shell or with the scheduler.
    """
    groups: dict[tuple[str | None, Changed], list[RankDevice]] = {}
    for rank in ranks:
        if rank.changed is not None:
            groups.setdefault((rank.started_with, rank.changed), []).append(rank)
    for (before, changed), group in groups.items():
        if not any(map(_uses_gpus, group)):
            continue
        others = {e for rank in ranks if rank.changed and rank not in group for e in listed(rank.changed.value)}
        found = list(_consequences(changed, before, group, own=len(group) == 1 and others.isdisjoint(_of(changed))))
        if not found:
            continue
        because = tuple(text for text, _ in found)
        harmful = any(harm for _, harm in found)
        yield Finding(
            code="SL231",
            severity="warning" if harmful else "note",
            summary=f"{_names(group)} set {VARIABLE}={changed.value} in the script{_at(changed.location)}, after the "
            f"start{f' with {before!r}' if before is not None else ''}: {because[0]}",
            because=because,
            remedy=f"leave {VARIABLE} to the launch and use the device cuda:LOCAL_RANK" if harmful else "",
            where=_place(changed.location),
        )


def _uses_gpus(rank: RankDevice) -> bool:
    late = rank.changed is not None and rank.changed.late  # CUDA had been initialised
    return "nccl" in rank.backend or bool(rank.count) or rank.refused or late


def _of(changed: Changed) -> list[str]:
    return listed(changed.value)


def _consequences(
    changed: Changed, before: str | None, group: Sequence[RankDevice], *, own: bool
) -> Iterator[tuple[str, bool]]:
    """What follows from a change, each with whether it does harm. `own` says that no other rank took these GPUs."""
    entries = _of(changed)
    if changed.late:
        if entries:
            yield "CUDA had been initialised: it changes nothing in this process, only in those that it starts", True
        return
    if not entries:
        if any("nccl" in rank.backend for rank in group):
            yield "NCCL is left without a GPU", True
        return
    yield from _refusals(entries, before, group)
    if own:
        yield f"this rank now sees {_listed(entries)} alone, and torch calls {_as_torch(entries)}", False
    else:
        yield from _other_gpus(entries, before, group)


def _refusals(entries: Sequence[str], before: str | None, group: Sequence[RankDevice]) -> Iterator[tuple[str, bool]]:
    """What the ranks may not use, or could not."""
    for rank in [rank for rank in group if rank.refused][:2]:
        yield f"set_device({rank.chosen}) of rank {rank.rank} failed, {_gpus(len(entries))} visible", True
    strange = _outside(entries, before)
    if strange:
        yield f"GPU {strange[0]} is not in the list that the rank was started with", True


def _other_gpus(entries: Sequence[str], before: str | None, group: Sequence[RankDevice]) -> Iterator[tuple[str, bool]]:
    """What LOCAL_RANK points to, where several ranks see the same list."""
    if len(group) > 1 and len(entries) == 1:
        yield f"all of them now see the same GPU {entries[0]}", True
    for rank in [rank for rank in group if rank.local_rank >= len(entries)][:2]:
        yield f"LOCAL_RANK {rank.local_rank} of rank {rank.rank} now points to no GPU, {len(entries)} visible", True
    old = [str(number) for number in range(len(entries))] if before is None else listed(before)
    for rank in [r for r in group if _entry(entries, r.local_rank) not in ("", _entry(old, r.local_rank))][:2]:
        place = rank.local_rank
        instead = f" instead of {old[place]}" if place < len(old) else ""
        yield f"LOCAL_RANK {place} of rank {rank.rank} now points to GPU {entries[place]}{instead}", False


def _outside(entries: Sequence[str], before: str | None) -> list[str]:
    """Entries that are not in the list of before; numbers and UUIDs cannot be compared."""
    given = listed(before or "")
    if not given or not all(entry.isdecimal() for entry in (*entries, *given)):
        return []
    return [entry for entry in entries if entry not in given]


def _listed(entries: Sequence[str]) -> str:
    return f"GPU {entries[0]}" if len(entries) == 1 else f"GPUs {', '.join(entries)}"


def _as_torch(entries: Sequence[str]) -> str:
    return "it cuda:0" if len(entries) == 1 else f"them cuda:0 to cuda:{len(entries) - 1}"


# --------------------------------------------------------------------------------------------------- set_device


def other_device(ranks: Sequence[RankDevice]) -> Iterator[Finding]:
    """A rank calls `set_device` with another number than its LOCAL_RANK, though all GPUs are visible to it.

    Libraries and torch itself go by LOCAL_RANK (DeviceMesh, Lightning, DeepSpeed): parts of one rank then work on
    different GPUs, and two ranks may meet on one. Binding to CPUs (--numa-binding) fits to LOCAL_RANK as well.

    How it is concluded: the rank notices its calls of `torch.cuda.set_device` and `torch.accelerator.set_device_index`;
    the last one counts. Nothing is said where one GPU is visible. Nor is it where ranks take several GPUs each, in
    order (`set_device(2 * LOCAL_RANK)` with 8 GPUs and 4 ranks), or where the rank shares its GPU, which SL230 tells.

    What to do: `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`. For another order of GPUs, set
    CUDA_VISIBLE_DEVICES before the launch.
    """
    astray = [rank for rank in ranks if _is_astray(rank)]
    if not astray:
        return
    shown = ", ".join(f"rank {rank.rank} (LOCAL_RANK {rank.local_rank}) on cuda:{rank.chosen}" for rank in astray[:4])
    rest = f" and {len(astray) - 4} more" if len(astray) > 4 else ""
    first = astray[0]
    one = f"rank {first.rank} called set_device({first.chosen}), and its LOCAL_RANK is {first.local_rank}"
    yield Finding(
        code="SL232",
        severity="warning",
        summary=(one if len(astray) == 1 else f"set_device does not follow LOCAL_RANK: {shown}{rest}")
        + _at(first.chosen_at),
        because=(
            f"{_gpus(first.count or 0)} visible to it, cuda:{first.local_rank} among them",
            "what goes by LOCAL_RANK (torch's DeviceMesh, libraries, --numa-binding) takes another GPU than the script",
        ),
        remedy='call torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        where=_place(first.chosen_at),
    )


def _is_astray(rank: RankDevice) -> bool:
    if rank.chosen is None or rank.refused or rank.count is None or not rank.local_rank < rank.count or rank.count < 2:
        return False
    each = rank.count // rank.local_size
    return rank.chosen != rank.local_rank and not (each > 1 and rank.chosen == each * rank.local_rank)


# ----------------------------------------------------------------------------------------------------- wording


def _entry(entries: Sequence[str], place: int) -> str:
    return entries[place] if place < len(entries) else ""


def _gpus(count: int) -> str:
    return f"{count} GPU is" if count == 1 else f"{count} GPUs are"


def _names(ranks: Sequence[RankDevice]) -> str:
    numbers = [str(rank.rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    shown = numbers if len(numbers) <= 8 else [*numbers[:7], f"{len(numbers) - 7} more"]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def _place(location: Location | None) -> str:
    return f"{location.file}:{location.line}" if location is not None else ""


def _at(location: Location | None) -> str:
    return f" at {_place(location)}" if location is not None else ""

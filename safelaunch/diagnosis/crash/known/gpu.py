"""Exceptions that come of a GPU: its memory, its number, its kernels, and NCCL on it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.crash import rank_devices
from safelaunch.diagnosis.crash.known.exception_detail import ExceptionDetail
from safelaunch.diagnosis.refine import gpu_faults
from safelaunch.diagnosis.wording import names, one_line, program
from safelaunch.model import Case, GpuState, PyError, RankFacts
from safelaunch.model.devices import gpu_of
from safelaunch.model.xids import parse
from safelaunch.sizes import plural, size

SHOWN = 4  # GPUs of the table; the bundle has all

# c10/cuda/CUDACachingAllocator.cpp, of torch 2.1 and later (2.1 writes `capacty`), and before.
WANTED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
STATE = re.compile(r"GPU (\d+) has a total capac\w* of ([\d.]+ \w+),? of which ([\d.]+ \w+) is free")
OLD_STATE = re.compile(r"\(GPU (\d+); ([\d.]+ \w+) total capacity;.*?; ([\d.]+ \w+) free;")
OWN = re.compile(r"this process has ([\d.]+ \w+) memory in use")
OTHER = re.compile(r"Process (\d+) has ")
HELD = re.compile(r"Process (\d{1,9}) has ([\d.]+ \w+)")
IDLE = re.compile(r"([\d.]+) (\w+) is reserved by PyTorch but unallocated")
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

FAULT = re.compile(r"(?:CUDA|HIP) error: ([^\n]+)|(device-side assert triggered|CUDA_ERROR_\w+)")

# torch/csrc/distributed/c10d/NCCLUtils.cpp and ProcessGroupNCCL.cpp.
NCCL = re.compile(r"(unhandled (?:cuda|system) error|internal error|invalid (?:argument|usage)|remote process \w+)")
NCCL_VERSION = re.compile(r"NCCL version ([\d.]+)")
LAST_ERROR = re.compile(r"Last error:\s*\n?\s*(\S[^\n]*)")
DUPLICATE = re.compile(r"Duplicate GPU detected ?: rank (\d{1,9}) and rank (\d{1,9}) both on CUDA device (\w+)")
VERSIONS = re.compile(r"(?:Mismatched NCCL version|NCCL version mismatch)[^\n]*")


def memory(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """The memory of a GPU was full when a rank asked for more.

    Example:
        error[SL420]: rank 1 ran out of GPU memory: it asked for 2.00 GiB, and GPU 0 has 1.04 GiB of 79.15 GiB free

    How it was concluded: the rank's exception says so (`CUDA out of memory`, `CUDA error: out of memory`, NCCL's
    `Failed to CUDA malloc`). Every rank that met it is named; where all did, none is. Who holds the memory comes from
    the driver (NVML), from the ranks' own mapping to GPUs, or from the message.

    What to do: the reasons say which of these holds:
    - processes that are not of this job hold more than 10 % of a GPU that is 90 % full: end them, or choose other GPUs;
    - several ranks use one GPU: call `torch.cuda.set_device(LOCAL_RANK)` before anything uses a GPU;
    - PyTorch has reserved as much as was asked for, in pieces: set `PYTORCH_ALLOC_CONF=expandable_segments:True`;
    - nothing of this: use less memory per GPU (micro batch, sequence length, activation checkpointing).

    What it is not: the memory of the host (SL404), or a kernel that failed (SL427).
    """
    said = "\n".join((error.message, *error.chain))
    wanted = WANTED.search(said)
    what = f"ran out of GPU memory{_request(ranks, said)}"
    sharing = crowd(case, ranks[0], said)
    idle = IDLE.search(said)
    strangers = gpu_faults.strangers(case, [facts.rank for facts in ranks])
    lines = [*strangers[:1], *([sharing] if sharing and not strangers else [])]
    lines += table(case, ranks)
    own = OWN.search(said)
    if own and not lines:
        lines.append(f"rank {ranks[0].rank} itself holds {own[1]}")
    remedy = error.known.remedy if error.known is not None else ""
    if strangers:
        remedy = "end that process if it is yours, or choose other GPUs with CUDA_VISIBLE_DEVICES"
    elif sharing:
        remedy = "give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK) before anything uses a GPU"
    elif wanted and idle and _bytes(f"{idle[1]} {idle[2]}") >= _bytes(wanted[1]) > 0:
        lines.append(f"{idle[1]} {idle[2]} are reserved by PyTorch and not in use: the memory is in pieces")
        remedy = "PYTORCH_ALLOC_CONF=expandable_segments:True lets PyTorch use what it holds in pieces"
    return ExceptionDetail("SL420", what, tuple(lines[:3]), remedy)


def _request(ranks: Sequence[RankFacts], said: str) -> str:
    """How much was asked for, and how much was free, as far as the message says."""
    wanted, state = WANTED.search(said), STATE.search(said) or OLD_STATE.search(said)
    words = ""
    if wanted:
        words = f": it asked for {wanted[1]}" if len(ranks) == 1 else f": rank {ranks[0].rank} asked for {wanted[1]}"
    return f"{words}, and GPU {state[1]} has {state[3]} of {state[2]} free" if state else words


def crowd(case: Case, facts: RankFacts, said: str) -> str:
    """`4 processes use GPU 0: ranks 0-3`, where more than one does: from what the driver says, the ranks' own mapping,
    or the message."""
    gpu = _gpu(case, facts)
    if gpu is not None:
        others = [tenant for tenant in gpu.tenants if tenant.pid != facts.pid and tenant.rank != facts.rank]
        if others:
            return _crowd(1 + len(others), gpu.ranks, f"GPU {gpu.index}", tuple(t.command for t in others if t.command))
        if len(gpu.ranks) > 1:
            return _crowd(len(gpu.ranks), gpu.ranks, f"GPU {gpu.index}")
    return _mapped_alike(case, facts) or _counted(case, facts, said)


def _mapped_alike(case: Case, facts: RankFacts) -> str:
    """The ranks of one node that took the same GPU, by their own words."""
    mine = gpu_of(facts.device) if facts.device is not None else None
    near = [(one.rank, one.device) for one in case.ranks if one.device is not None and one.node == facts.node]
    alike = [rank for rank, device in near if mine is not None and gpu_of(device) == mine]
    return _crowd(len(alike), alike, f"GPU {mine}") if len(alike) > 1 else ""


def _counted(case: Case, facts: RankFacts, said: str) -> str:
    """The processes that the message itself counts, with what each holds."""
    others, own = tenants(said), OWN.search(said)
    if not others:
        return ""
    parts = [f"rank {facts.rank} {own[1]}"] if own else []
    for pid, amount in dict(HELD.findall(said)).items():
        known = case.of_pid(int(pid), facts.node)
        parts.append(f"{f'pid {pid}' if known is None else f'rank {known.rank}'} {amount}")
    return f"{1 + others} processes hold memory of its GPU: {', '.join(parts[: SHOWN + 1])}"


def _crowd(count: int, ranks: Iterable[int], gpu: str, commands: tuple[str, ...] = ()) -> str:
    listed = tuple(ranks)
    who = names(listed) if listed else ""
    if count > len(listed) and commands:
        who = ", ".join(filter(None, (who, *dict.fromkeys(program(command) for command in commands[:2]))))
    return f"{count} processes use {gpu}" + (f": {who}" if who else "")


def tenants(text: str) -> int:
    """Other processes that a message of a full GPU counts. In a container the process does not know itself."""
    processes = len(set(OTHER.findall(text)))
    return processes if "this process has" in text else max(0, processes - 1)


def table(case: Case, ranks: Sequence[RankFacts]) -> list[str]:
    """What the GPUs hold, those of these ranks first: one line for each of those, one for all others."""
    nodes, wanted = {facts.node for facts in ranks}, {facts.rank for facts in ranks}
    here = [gpu for gpu in case.gpus if gpu.node in nodes]
    read = [gpu for gpu in here if gpu.memory_used is not None and gpu.memory_total]
    own = [gpu for gpu in read if wanted & set(gpu.ranks)]
    lines = [_row(gpu) for gpu in own[:1]]
    rest = [gpu for gpu in read if gpu not in own[:1]]
    if rest:
        few = ", ".join(f"GPU {gpu.index}{_of(gpu.ranks)} {size(gpu.memory_used or 0)}" for gpu in rest)
        lines.append(f"the other GPUs in use hold: {few if len(rest) <= SHOWN else _range(rest)}")
    return lines


def _range(gpus: Sequence[GpuState]) -> str:
    used = [gpu.memory_used or 0 for gpu in gpus]
    return f"{size(min(used))} to {size(max(used))}"


def _row(gpu: GpuState) -> str:
    line = f"GPU {gpu.index} holds {size(gpu.memory_used or 0)} of {size(gpu.memory_total or 0)}"
    parts = [
        f"{f'rank {t.rank}' if t.rank is not None else f'pid {t.pid}'} {size(t.memory_bytes)}"
        for t in sorted(gpu.tenants, key=lambda t: -(t.memory_bytes or 0))
        if t.memory_bytes is not None
    ]
    return line + (f": {', '.join(parts[:SHOWN])}" if parts else _of(gpu.ranks))


def _of(ranks: Sequence[int]) -> str:
    return f" ({names(ranks)})" if ranks else ""


def _gpu(case: Case, facts: RankFacts) -> GpuState | None:
    """The one GPU that a rank uses, as the driver or the rank says."""
    here = [gpu for gpu in case.gpus if gpu.node == facts.node]
    own = [gpu for gpu in here if facts.rank in gpu.ranks or facts.pid in {t.pid for t in gpu.tenants}]
    return own[0] if len(own) == 1 else None


def _bytes(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number) * UNITS.get(unit, 0)


# ------------------------------------------------------------------------------------------------ its number


def ordinal(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """A rank asked for a GPU that it cannot see.

    Example:
        error[SL425]: rank 1 asked for cuda:7, and sees 2 GPUs

    How it was concluded: the rank's exception says `invalid device ordinal`, or that there is no GPU at all. The
    reasons show the mapping of the ranks concerned: LOCAL_RANK, CUDA_VISIBLE_DEVICES and who has set it, how many GPUs
    torch sees, and which one was chosen.
    The bundle has that of all ranks.

    What to do: start no more ranks than there are GPUs (`--nproc-per-node`), and use LOCAL_RANK, not RANK, for the
    device. Do not set CUDA_VISIBLE_DEVICES in the script.

    What it is not: two ranks on one GPU. That is SL426 where NCCL refuses it, and SL420 where the memory is full.
    """
    because, remedy = rank_devices.trouble(case, ranks, error.message)
    device = ranks[0].device
    what = "asked for a GPU that it cannot see" if len(ranks) == 1 else "asked for GPUs that they cannot see"
    if device is not None and device.chosen is not None and device.count is not None and len(ranks) == 1:
        what = f"asked for cuda:{device.chosen}, and sees {plural(device.count, 'GPU')}"
    return ExceptionDetail("SL425", what, because, remedy or (error.known.remedy if error.known is not None else ""))


# ------------------------------------------------------------------------------------------------ its kernels


def kernel(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """A kernel of a rank failed on its GPU, and CUDA gave the rank an error.

    Example:
        error[SL427]: rank 1 failed in a GPU kernel: an illegal memory access was encountered

    How it was concluded: the rank's exception says so (`device-side assert triggered`, another `CUDA error: …`). What
    the driver logged of that rank's GPU (Xid) is shown beside it. Kernels run behind the program: the line is where the
    failure was noticed, not where it was made.

    What to do: look at the indices, labels and token ids of this rank's batch. `CUDA_LAUNCH_BLOCKING=1` shows the line.

    What it is not: a GPU that is broken. Where the driver has logged a fault of the hardware, it is SL428.
    """
    said = "\n".join((error.message, *error.chain))
    fault = FAULT.search(said)
    how = one_line(next(filter(None, fault.groups())), 120) if fault else one_line(error.message, 120)
    because = _logged(case, ranks)
    because.append("kernels run behind the program: the line is where the failure was noticed, not where it was made")
    remedy = error.known.remedy if error.known is not None else ""
    return ExceptionDetail("SL427", f"failed in a GPU kernel: {how}", tuple(because), remedy)


def _logged(case: Case, ranks: Sequence[RankFacts]) -> list[str]:
    """What the driver logged of the GPUs of these ranks during this run."""
    wanted = {facts.rank for facts in ranks}
    own = [(gpu, text) for gpu in case.gpus if wanted & set(gpu.ranks) for text in gpu.xids]
    found = [(gpu, xid) for gpu, text in own if (xid := parse(text)) is not None]
    found.sort(key=lambda one: not (one[1].ends_work or one[1].of_program))
    return [f"the driver logged {xid.named} of {gpu_faults.label(gpu)}" for gpu, xid in found[:1]]


# ------------------------------------------------------------------------------------------------ NCCL


def nccl(case: Case, ranks: Sequence[RankFacts], error: PyError) -> ExceptionDetail:
    """A call of NCCL failed on a rank, for a reason of its own.

    Example:
        error[SL426]: rank 1 got an error of NCCL: unhandled system error (NCCL 2.27.5)

    How it was concluded: the rank's exception says so, with NCCL's own last error where that is in the message. A
    remote error, or a lost connection, is a consequence and blames nobody. Where ranks share a GPU, these ranks are
    named in the headline (`Duplicate GPU detected`, or the ranks' own mapping). Several ranks are not blamed while a
    living one has not spoken.

    What to do: set `NCCL_DEBUG=WARN`, and read the reason on the rank that met it first. Ranks on one GPU must call
    `torch.cuda.set_device(LOCAL_RANK)` first. Different versions of NCCL need one image for all nodes.

    What it is not: a lost peer (SL412), a timeout (SL414), or a fault of a GPU that the driver has logged (SL428).
    """
    said = "\n".join((error.message, *error.chain))
    remedy = error.known.remedy if error.known is not None else ""
    return _of_mapping(case, ranks, said, remedy) or _of_words(case, ranks, said, remedy)


def _of_mapping(case: Case, ranks: Sequence[RankFacts], said: str, remedy: str) -> ExceptionDetail | None:
    """Which GPU each rank took explains it; None where it does not."""
    because, way_out = rank_devices.trouble(case, ranks, said)
    pair = DUPLICATE.search(said)
    if pair:
        return _one_gpu(sorted({int(pair[1]), int(pair[2])}), pair[3], because, way_out or remedy)
    if because or way_out:
        return ExceptionDetail("SL426", "", because, way_out)
    # nccl2 does not pass on what NCCL says of ranks that share a GPU.
    sharing, gpu = rank_devices.sharing(case) if "invalid usage" in said else ((), "")
    if not sharing:
        return None
    return _one_gpu([facts.rank for facts in sharing], gpu, rank_devices.table(sharing), rank_devices.ONE_EACH)


def _one_gpu(ranks: Sequence[int], gpu: str, because: tuple[str, ...], remedy: str) -> ExceptionDetail:
    summary = f"{names(ranks)} use the same GPU ({gpu}), which NCCL does not allow"
    return ExceptionDetail("SL426", "", because, remedy, summary=summary)


def _of_words(case: Case, ranks: Sequence[RankFacts], said: str, remedy: str) -> ExceptionDetail:
    """What NCCL itself says."""
    how, version, last = NCCL.search(said), NCCL_VERSION.search(said), LAST_ERROR.search(said)
    versions = VERSIONS.search(said)
    what = "got an error of NCCL" + (f": {how[1]}" if how else "") + (f" (NCCL {version[1]})" if version else "")
    if versions:
        what = "found another version of NCCL on a peer"
    lines = [f"NCCL says: {one_line(last[1], 160)}"] if last else []
    if versions and not (last and versions[0] in last[1]):
        lines.append(f"NCCL says: {one_line(versions[0], 160)}")
    lines += _logged(case, ranks)
    if not lines:
        lines.append("NCCL's own reason is not in the message: NCCL_DEBUG=WARN prints it")
    return ExceptionDetail("SL426", what, tuple(lines), remedy)

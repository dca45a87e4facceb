"""Runs that are slow where calls end on GPUs: a slow GPU, host or link, told apart by what the GPUs do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from safelaunch.diagnosis.slow import reasons
from safelaunch.diagnosis.slow.one_rank import of_rank
from safelaunch.diagnosis.slow.reasons import NOTABLE, Lateness, Reason, span
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, Confidence, GpuState
from safelaunch.model.slow import DevicePace, Slowness

Who = Literal["gpu", "host", ""]

MOSTLY = 0.6  # of the time that a rank needs more than its peers: what holds so much of it is the cause; an estimate
BUSY = 95  # percent of the time in which a kernel runs, by NVML: a GPU that never waits for its host
SAMPLED_S = 0.3  # NVML measures over a sixth of a second to a second: of longer steps it may see one part alone
CLOCK = 0.9  # of the clocks of its peers: less is another speed, and no boost that comes and goes; an estimate
# What a host sleeps in that does not wait for its GPU: CUDA spins, yields, or waits for a futex or an ioctl.
SLEEPS = frozenset(
    ("clock_nanosleep", "nanosleep", "select", "pselect6", "poll", "read", "pread64", "openat", "recvfrom", "wait4",
     "fsync", "connect", "newfstatat")
)  # fmt: skip
NOBODY = "the GPUs of all ranks come to their calls together"


@dataclass(frozen=True)
class Excess:
    """How much longer one GPU needs for itself than its peers, in seconds of a step.

    Args:
        pace: of that GPU.
        own_s: the time of its peers for themselves.
        host_s: the part of it before their hosts had enqueued the work.
        call_s: their time in calls.
    """

    pace: DevicePace
    own_s: float
    host_s: float
    call_s: float

    @property
    def all_s(self) -> float:
        """All of it."""
        return self.pace.own_s - self.own_s

    @property
    def hosted(self) -> float:
        """What of it came before its host had enqueued the work."""
        return self.pace.host_s - self.host_s

    @property
    def worked(self) -> float:
        """What of it came while all the work was enqueued."""
        return self.all_s - self.hosted


def straggler(case: Case, slow: Slowness) -> Lateness | None:
    """What is said of the ranks whose GPUs come last to the calls; None where their paces are not known."""
    rank = slow.ranks[0]
    pace = next((one for one in slow.devices if one.rank == rank), None)
    peers = [one for one in slow.devices if one.rank not in slow.ranks]
    if pace is None or not peers:
        return None
    times = ("own_s", "host_s", "call_s")
    excess = Excess(pace, *(statistics.median(getattr(one, name) for one in peers) for name in times))
    gpu = max((gpu for gpu in case.gpus if rank in gpu.ranks), key=lambda gpu: _held_by(gpu, rank), default=None)
    lost = excess.all_s / slow.now_s if slow.now_s else 0.0
    reason = of_rank(case, slow, rank, lost)
    if reason.everywhere:
        return None
    who = _who(slow, excess, gpu, reason)
    if who == "host" and reason.loader and reasons.at_their_limit(slow) is not False:
        return None  # `loader_bound` tells
    seen = _seen(slow, excess)
    if who == "gpu":
        return _gpu(case, slow, gpu, excess, seen)
    if who == "host":
        return _host(slow, excess, gpu, reason, seen)
    return _either(slow, excess, gpu, reason, seen)


def _who(slow: Slowness, excess: Excess, gpu: GpuState | None, reason: Reason) -> Who:
    """Whose time it is. Before all was enqueued, the host may have been at work, or have waited for its own GPU."""
    if excess.worked >= MOSTLY * excess.all_s:
        return "gpu"
    if excess.hosted < MOSTLY * excess.all_s:
        return ""
    busy = _busy(slow, gpu)
    if busy is not None and busy >= BUSY:
        return "gpu"
    stands = reasons.standing(slow, excess.pace.rank)
    sleeps = stands is not None and stands.call in SLEEPS
    return "host" if sleeps or reason.on_host or _idles(slow, excess, busy) else ""


def _busy(slow: Slowness, gpu: GpuState | None) -> int | None:
    """In how much of the time a GPU runs a kernel, in percent, where NVML sees whole steps."""
    return gpu.busy_percent if gpu is not None and slow.now_s and slow.now_s <= SAMPLED_S else None


def _idles(slow: Slowness, excess: Excess, busy: int | None) -> bool:
    """Whether a GPU has nothing to do for half the time, or more, in which its host had not enqueued the work."""
    return busy is not None and bool(slow.now_s) and 1 - busy / 100 >= excess.hosted / (slow.now_s or 1.0) / 2


def _gpu(case: Case, slow: Slowness, gpu: GpuState | None, excess: Excess, seen: tuple[str, ...]) -> Lateness:
    why = _why(case, slow, gpu)
    work = " in its forward passes" if excess.pace.mixed else ""
    times = f"it computes for {span(excess.pace.own_s)} of a {slow.unit}{work}, its peers' for {span(excess.own_s)}"
    factor = f" ({excess.pace.own_s / max(excess.own_s, 1e-9):.1f} times)"
    summary = f"{_name(slow, gpu)} slow{reasons.since(slow)}: {times}{factor}"
    worked = max(excess.pace.own_s - excess.pace.host_s, 0.0)
    enqueued = f"for {span(worked)} of that its host had enqueued all of it: the host is not what it waits for"
    if excess.worked < MOSTLY * excess.all_s:
        enqueued = f"it is never idle ({_percent(gpu)} busy, by NVML): its host waits for it, as in item()"
    if why is None:
        unknown = "its clocks are not held back (NVML)" if gpu is not None else "NVML says nothing of it"
        because = (
            f"{unknown}: it is slow at the same work, or has more to compute than its peers; which, cannot be told"
        )
        remedy = "compare its batches with those of its peers, and `nvidia-smi -q` of both GPUs"
        return Lateness(summary, (enqueued, because, *seen), remedy, "medium")
    return Lateness(f"{summary}; {why.what}", (*why.because, enqueued, *seen), why.remedy, "high")


def _host(slow: Slowness, excess: Excess, gpu: GpuState | None, reason: Reason, seen: tuple[str, ...]) -> Lateness:
    waits = f"{span(excess.pace.host_s)} of a {slow.unit}, those of its peers {span(excess.host_s)}"
    whose = "its GPU waits" if len(slow.ranks) == 1 else f"the GPU of rank {excess.pace.rank} waits"
    summary = f"{reasons.are_slow(slow)}: {whose} for its host to enqueue work, {waits}"
    idle = f"its GPU is busy {_percent(gpu)} of the time (NVML)" if gpu is not None and gpu.busy_percent else ""
    because = tuple(filter(None, (*reason.because[:2], idle, *seen)))
    confidence: Confidence = "high" if reason.shown else "medium"
    return Lateness(reasons.with_reason(summary, reason), because, reason.remedy, confidence, reason.location)


def _either(slow: Slowness, excess: Excess, gpu: GpuState | None, reason: Reason, seen: tuple[str, ...]) -> Lateness:
    times = f"its GPU comes to its calls {span(excess.all_s)} of a {slow.unit} later than its peers'"
    summary = f"{reasons.are_slow(slow)}: {times}; whether by its host or by its GPU cannot be told"
    part = f"for {span(excess.hosted)} of that its host had not enqueued the work: it was slow, or waited for its GPU"
    clocks = (reasons.held_back(gpu),) if gpu is not None and gpu.held_back else ()
    busy = (f"its GPU is busy {_percent(gpu)} of the time (NVML)",) if gpu is not None and gpu.busy_percent else ()
    because = (part, *clocks, *busy, *reason.because[:1], *seen)
    remedy = "see where it stands: in item() or synchronize() it waits for its GPU; elsewhere the host is slow"
    return Lateness(summary, because, remedy, "medium", reason.location)


def _why(case: Case, slow: Slowness, gpu: GpuState | None) -> Reason | None:
    """Why a GPU is slow, by NVML: what its peers do not have."""
    if gpu is None:
        return None
    others = [one for one in case.gpus if one.ranks and not set(one.ranks) & set(slow.ranks)]
    return _clocks_held_back(gpu, others) or _other_process(gpu) or _lower_clock(gpu, others)


def _clocks_held_back(gpu: GpuState, others: Sequence[GpuState]) -> Reason | None:
    of_others = {words for one in others for words in one.held_back}
    own = [words for words in gpu.held_back if words not in of_others]
    if not own:
        return None
    what = f"its clocks are held back: {', '.join(own)}"
    remedy = "check cooling and power of that GPU (`nvidia-smi -q -d PERFORMANCE`)"
    return Reason(what, (reasons.held_back(gpu),), remedy)


def _other_process(gpu: GpuState) -> Reason | None:
    strangers = [one for one in gpu.tenants if one.rank is None and one.command]
    if not strangers:
        return None
    who = ", ".join(f"{one.command} (pid {one.pid})" for one in strangers[:2])
    line = f"GPU {gpu.index} is used by {who} as well"
    return Reason("another process uses it", (line,), "end or move that process")


def _lower_clock(gpu: GpuState, others: Sequence[GpuState]) -> Reason | None:
    clocks = [one.clock_mhz for one in others if one.clock_mhz]
    if not gpu.clock_mhz or not clocks or gpu.clock_mhz >= CLOCK * statistics.median(clocks):
        return None
    usual = f"{statistics.median(clocks):.0f} MHz"
    line = f"GPU {gpu.index} runs at {gpu.clock_mhz} MHz, those of its peers at {usual}"
    limits = [words for words in gpu.limited_by if not all(words in one.limited_by for one in others)]
    what = f"its clock is lower{f' ({limits[0]})' if limits else ''}"
    return Reason(what, (line,), "look for locked clocks and power limits (`nvidia-smi -q -d CLOCK`)")


def _seen(slow: Slowness, excess: Excess) -> tuple[str, ...]:
    pace = next((one for one in slow.paces if one.rank == excess.pace.rank), None)
    looks = f"; last in {pace.late} of {pace.of} parts of the time" if pace is not None and pace.of else ""
    calls = f"its peers' GPUs are in calls for {span(excess.call_s)} of a {slow.unit}, its own for "
    return (f"{calls}{span(excess.pace.call_s)} (CUDA events in their streams{looks})",)


def _name(slow: Slowness, gpu: GpuState | None) -> str:
    if len(slow.ranks) > 1:
        return f"the GPUs of {names(slow.ranks)} are"
    return f"GPU {gpu.index} of {names(slow.ranks)} is" if gpu is not None else f"the GPU of {names(slow.ranks)} is"


def _held_by(gpu: GpuState, rank: int) -> int:
    """Memory that a rank has on a GPU, in bytes: a process may have a context on another one than its own."""
    return sum(tenant.memory_bytes or 0 for tenant in gpu.tenants if tenant.rank == rank)


def _percent(gpu: GpuState | None) -> str:
    return f"{gpu.busy_percent or 0} %" if gpu is not None else "?"


# ------------------------------------------------------------------------------------------------------- all of them


@dataclass(frozen=True)
class _Part:
    """The part of a step that has grown most, of the GPU on which it takes least: now and before, in words."""

    name: str
    now: str
    before: str


def of_all(case: Case, slow: Slowness) -> Iterator[Reason]:
    """What takes the time of all GPUs, where they come together."""
    part = _grown(slow)
    if part is None:
        return
    if part.name == "calls":
        yield _calls_take_longer(case, slow, part)
    elif part.name == "hosts":
        line = f"each GPU waits {part.now} of a {slow.unit} for its host to enqueue work, {part.before} before"
        yield Reason("the hosts enqueue work later", (line,), "look at what the ranks do there: data, logging, the CPU")
    else:
        what = f"each GPU computes for {part.now} of a {slow.unit}, {part.before} before"
        line = f"{what}, on what its host had enqueued"
        yield Reason("the GPUs compute longer", (line,), "where inputs have not grown, look at the clocks of the GPUs")


def _grown(slow: Slowness) -> _Part | None:
    """The part of the time that has grown most. Without a look from before, a part that takes longer than the whole of
    a step then."""
    if not slow.on_device or slow.unknown or not slow.devices or not slow.now_s:
        return None
    least = {name: _least(slow.devices, part) for name, part in PARTS.items()}
    before = dict.fromkeys(PARTS, slow.usual_s)
    if slow.devices_before:
        before = {name: _least(slow.devices_before, part) for name, part in PARTS.items()}
    grown = {name: least[name] - (then or 0.0) for name, then in before.items() if then is not None}
    name = max(grown, key=grown.__getitem__, default="")
    if not name or grown[name] < 2 * NOTABLE * slow.now_s:
        return None
    then = span(before[name])
    return _Part(name, span(least[name]), then if slow.devices_before else f"{then} for all of it")


def _calls_take_longer(case: Case, slow: Slowness, part: _Part) -> Reason:
    if all(one.mixed for one in slow.devices):
        what, calls = "backward passes and the calls in them take longer", "backward passes and the calls in them"
    else:
        what, calls = "the GPUs are longer in the calls", "calls"
    line = f"even the GPU that comes last is in {calls} for {part.now} of a {slow.unit}, {part.before} before"
    links = tuple(
        f"GPU {gpu.index} ({names(gpu.ranks)}): {gpu.links_down} of {gpu.links or '?'} NVLinks are down"
        for gpu in case.gpus
        if gpu.links_down and gpu.ranks
    )
    nvml = "NVML shows no NVLink that is down" if case.gpus else "NVML says nothing of NVLinks"
    remedy = "check NVLinks (`nvidia-smi nvlink -s`), PCIe, and the network ports between nodes"
    return Reason(what, (line, *(links or (f"which link is slow is not known: {nvml}",))), remedy)


PARTS: dict[str, Callable[[DevicePace], float]] = {
    "calls": lambda one: one.call_s,
    "hosts": lambda one: one.host_s,
    "GPUs": lambda one: one.own_s - one.host_s,
}


def _least(paces: Sequence[DevicePace], part: Callable[[DevicePace], float]) -> float:
    return min(map(part, paces))

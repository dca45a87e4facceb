"""Why one rank is slower than the others: its loader, the CPU, memory, the disk, clocks, or its own code."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from safelaunch.diagnosis import wording
from safelaunch.diagnosis.slow.reasons import (
    FAULTS,
    HALF,
    MORE,
    MOST,
    NOTABLE,
    Reason,
    at,
    busiest,
    held_back,
    idles,
    loading,
    pace_of,
    standing,
    stands_of,
    usage_of,
)
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case
from safelaunch.model.slow import Busy, Pace, Slowness, Standing, Usage

TIMES = 1.4  # the CPU time of the others: from there on a rank counts as late, too
CHILDREN = 0.3  # cores that its child processes take, to be a reason; an estimate
LOOK = "look at the named line, and at what else runs on this node"


def of_rank(case: Case, slow: Slowness, rank: int, lost: float) -> Reason:
    """Why one rank is slower than the others, of whose time it costs the share `lost`."""
    for reason in (
        _loader(slow, rank, lost),
        _beside(slow, rank, lost),
        _computes(slow, rank, lost),
        _queued(slow, rank, lost),
        _paged(slow, rank),
        _in_disk_sleep(slow, rank),
        _clocks(case, rank),
    ):
        if reason is not None:
            return reason
    stands = standing(slow, rank)
    if stands is not None and stands.running < HALF * stands.of and idles(slow, rank):
        where = "it mostly sleeps or waits there, and uses little CPU"
        return Reason("it sleeps or waits", (f"rank {rank} stands {at(stands)}: {where}",), LOOK, stands.location)
    if _crowded(slow, rank):
        return Reason("", (), "", everywhere=True)
    if stands is not None:
        return Reason("", (f"rank {rank} stands {at(stands)}",), LOOK, stands.location, shown=False)
    return Reason("", ("nothing that is watched tells why",), LOOK, shown=False)


def _loader(slow: Slowness, rank: int, lost: float) -> Reason | None:
    own, peers = pace_of(slow, rank).loading or 0.0, _others(slow, rank, lambda pace: pace.loading)
    if own - peers < MOST * lost or own < NOTABLE:
        return None
    found = loading(slow, (rank,))
    share = f"rank {rank} waits {own:.0%} of its time for its DataLoader, its peers {peers:.0%}"
    lines = (share, *found.because)
    return Reason("it waits for its DataLoader", lines, found.remedy, found.location, loader=True, on_host=True)


def _queued(slow: Slowness, rank: int, lost: float) -> Reason | None:
    usage = usage_of(slow, rank)
    if usage is None or usage.queued is None:
        return None
    others = [one for one in _peers(slow, rank) if one.queued is not None]
    peers = statistics.median(one.queued or 0.0 for one in others) if others else 0.0
    if usage.queued - peers < MOST * lost or usage.queued < NOTABLE:
        return None
    share = f"its threads wait {usage.queued:.2f} s of each second for a CPU, those of its peers {peers:.2f} s"
    by_children = _children(slow, usage, share)
    if by_children is not None:
        return by_children
    if _is_confined(usage, others):
        lines = [f"rank {rank} may only use CPU {_cpus(usage.cpus)}; {share}", *_rivals(slow, usage)]
        sharing = [one.rank for one in others if one.cpus == usage.cpus]
        lines += [f"{names(sharing)} may use no other CPUs either"] if sharing else []
        remedy = "give the rank the same CPUs as its peers (taskset, cpusets, --numa-binding)"
        return Reason(NO_CPU, tuple(lines), remedy, on_host=True)
    remedy = "end or move the other processes, or bind ranks to CPUs of their own"
    lines = [f"rank {rank}: {share}", *_rivals(slow, usage)]
    return Reason(NO_CPU, tuple(lines), remedy, everywhere=peers >= NOTABLE, on_host=True)


def _children(slow: Slowness, usage: Usage, share: str) -> Reason | None:
    """Processes below the rank that take its CPUs, and not much less of them than what does not belong to the run."""

    def cores(found: Iterable[Busy]) -> float:
        # Who may use other CPUs as well takes a part of its time there.
        return sum(
            one.cores * (len(set(one.cpus) & set(usage.cpus)) / len(one.cpus) if one.cpus else 1) for one in found
        )

    own = [one for one in slow.children if one.of == usage.rank]
    if cores(own) < CHILDREN or cores(own) < HALF * cores(slow.others):
        return None
    said = (
        f"rank {usage.rank}: {share}",
        f"child processes of rank {usage.rank}, on the same CPUs: {busiest(own)}",
        *_rivals(slow, usage),
    )
    remedy = "let them do less, in fewer processes, or give them CPUs of their own"
    return Reason("its own child processes take its CPU", said, remedy, on_host=True)


NO_CPU = "it does not get the CPU"


def _is_confined(usage: Usage, others: Sequence[Usage]) -> bool:
    """Whether a rank may use fewer CPUs than most of its peers."""
    wider = [one for one in others if len(one.cpus) > len(usage.cpus)]
    return bool(usage.cpus) and len(wider) > len(others) / 2


def _rivals(slow: Slowness, usage: Usage) -> Iterator[str]:
    """Who uses the CPUs of a rank and does not belong to the run."""
    found = [one for one in slow.others if not one.cpus or set(one.cpus) & set(usage.cpus)]
    if found:
        yield f"beside the run: {busiest(found)}"


def _paged(slow: Slowness, rank: int) -> Reason | None:
    usage = usage_of(slow, rank)
    peers = [one.faults for one in _peers(slow, rank)]
    if usage is None or usage.faults < FAULTS or usage.faults < MORE * (statistics.median(peers) if peers else 0.0):
        return None
    swap = f", {usage.swapped_bytes >> 20} MiB of it are swapped out" if usage.swapped_bytes else ""
    line = f"rank {rank} reads {usage.faults:.0f} pages a second back from disk (major page faults){swap}"
    return Reason(
        "its memory is read back from disk", (line,), "give the node or the container more memory", on_host=True
    )


def _in_disk_sleep(slow: Slowness, rank: int) -> Reason | None:
    stands = standing(slow, rank)
    if stands is None or stands.held < HALF * stands.of or stands.of < 2:
        return None
    what = f" on {stands.file}" if stands.file else ""
    line = f"rank {rank} was in uninterruptible sleep in {stands.held} of {stands.of} looks{what}, {at(stands)}"
    what = "it waits for a disk or a file system"
    return Reason(what, (line,), "check that file system", stands.location, on_host=True)


def _clocks(case: Case, rank: int) -> Reason | None:
    mine = [gpu for gpu in case.gpus if rank in gpu.ranks and gpu.held_back]
    free = [gpu for gpu in case.gpus if rank not in gpu.ranks and not gpu.held_back]
    if not mine or not free:
        return None
    return Reason("its GPU is held back", (held_back(mine[0]),), "check cooling and power of that GPU")


def _computes(slow: Slowness, rank: int, lost: float) -> Reason | None:
    usage = usage_of(slow, rank)
    peers = [one.cpu for one in _peers(slow, rank)]
    if usage is None or not peers or usage.cpu < TIMES * statistics.median(peers):
        return None
    # On CPUs that others use too, each second of work takes longer than a second.
    stretched = 1 + (usage.queued or 0.0) / max(usage.cpu, 0.01)
    if (usage.cpu - statistics.median(peers)) * stretched < MOST * lost:
        return None
    line = f"rank {rank} uses {usage.cpu:.1f} cores, its peers {statistics.median(peers):.1f}: it computes more"
    stands = standing(slow, rank)
    where = (f"rank {rank} stands {at(stands)}",) if stands is not None else ()
    location = stands.location if stands is not None else None
    return Reason("it computes more than its peers", (line, *where), "look at what that rank does there", location)


def _beside(slow: Slowness, rank: int, lost: float) -> Reason | None:
    """Other threads of the rank that run Python: one at a time does, and its main thread waits for its turn."""
    usage, stands = usage_of(slow, rank), stands_of(slow, rank)
    if usage is None or usage.beside is None or stands is None or not _runs_python_beside(slow, stands):
        return None
    peers = [one.beside for one in _peers(slow, rank) if one.beside is not None]
    if not peers or usage.beside - statistics.median(peers) < max(MOST * lost, HALF):
        return None
    many = "another thread" if stands.others == 1 else f"{stands.others} other threads"
    line = (
        f"rank {rank}: threads beside its main thread use {usage.beside:.1f} cores, those of its peers "
        f"{statistics.median(peers):.1f}; Python runs one thread at a time"
    )
    where = f"{many} of rank {rank} {'runs' if stands.others == 1 else 'run'} Python{wording.at(stands.beside)}"
    remedy = "do that work in a process of its own, or less often"
    what = "threads of its own take the time of its main thread"
    return Reason(what, (line, where), remedy, stands.beside, on_host=True)


def _runs_python_beside(slow: Slowness, stands: Standing) -> bool:
    """Whether other threads of this rank alone mostly run Python. Where they run now and then, or in each rank, other
    threads use that time, in native code."""
    if stands.beside is None or stands.taken < HALF * stands.of:
        return False
    others = (one for one in slow.standing if one.rank != stands.rank and not one.worker)
    return all(one.taken < HALF * one.of for one in others)


def _crowded(slow: Slowness, rank: int) -> bool:
    """Whether the rank and its peers alike wait for CPUs: who comes off worst then changes all the time."""
    usage = usage_of(slow, rank)
    peers = [one.queued for one in _peers(slow, rank) if one.queued is not None]
    alike = usage is not None and usage.queued is not None and usage.queued >= NOTABLE
    return alike and bool(peers) and statistics.median(peers) >= NOTABLE


def _peers(slow: Slowness, rank: int) -> list[Usage]:
    """What the others use; where all nodes were compared, those that keep up: a whole node may be slow."""
    return [one for one in slow.usage if one.rank != rank and not (slow.nodes and one.rank in slow.ranks)]


def _others(slow: Slowness, rank: int, value: Callable[[Pace], float | None]) -> float:
    found = [value(pace) or 0.0 for pace in slow.paces if pace.rank != rank and pace.rank not in slow.ranks]
    return statistics.median(found) if found else 0.0


def _cpus(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus[:8])) + (", ..." if len(cpus) > 8 else "")

"""Why a rank is slow, or all of them: its loader, the CPU, memory, the disk, clocks, or its own code."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis import wording
from safelaunch.diagnosis.wording import names
from safelaunch.model import Case, GpuState, Location
from safelaunch.model.slow import Busy, Pace, Slowness, Standing, Usage

MOST = 0.4  # of the lost time: what accounts for so much is a reason; an estimate
NOTABLE = 0.15  # of all time, in which something happens that did not happen before
TIMES = 1.4  # the CPU time of the others: from there on a rank counts as late, too
FAULTS = 50.0  # pages a second that come from a disk, at 0.1 ms (an SSD) to 10 ms each; an estimate
MORE = 5.0  # times as many as those of the others, or as before
IDLE_GPU = 50  # percent
HALF = 0.5


@dataclass(frozen=True)
class Reason:
    """`what` completes "rank 1 is slow: it ...", `because` are the lines that show it. `shown` says that a source of
    its own shows it (/proc, the loader's time, stacks), `everywhere` that it is the same for all ranks, `loader` that
    it is the loader, `on_host` that it is nothing that a wait for the rank's own GPU looks like."""

    what: str
    because: tuple[str, ...]
    remedy: str
    location: Location | None = None
    shown: bool = True
    everywhere: bool = False
    loader: bool = False
    on_host: bool = False


def of_rank(case: Case, slow: Slowness, rank: int, lost: float) -> Reason:
    """Why one rank is slower than the others, of whose time it costs the share `lost`."""
    for reason in (
        _loader(slow, rank, lost),
        _beside(slow, rank, lost),
        _computes(slow, rank, lost),
        _queued(slow, rank, lost),
        _paged(slow, rank),
        _held(slow, rank),
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


LOOK = "look at the named line, and at what else runs on this node"


# -------------------------------------------------------------------------------------------------- one of them


def _loader(slow: Slowness, rank: int, lost: float) -> Reason | None:
    own, peers = _pace(slow, rank).loading or 0.0, _others(slow, rank, lambda pace: pace.loading)
    if own - peers < MOST * lost or own < NOTABLE:
        return None
    found = loading(slow, (rank,))
    share = f"rank {rank} waits {own:.0%} of its time for its DataLoader, its peers {peers:.0%}"
    lines = (share, *found.because)
    return Reason("it waits for its DataLoader", lines, found.remedy, found.location, loader=True, on_host=True)


def _queued(slow: Slowness, rank: int, lost: float) -> Reason | None:
    usage = _usage(slow, rank)
    if usage is None or usage.queued is None:
        return None
    others = [one for one in slow.usage if one.rank != rank and one.queued is not None]
    peers = statistics.median(one.queued or 0.0 for one in others) if others else 0.0
    if usage.queued - peers < MOST * lost or usage.queued < NOTABLE:
        return None
    narrow = [one for one in others if len(one.cpus) > len(usage.cpus)]
    share = f"its threads wait {usage.queued:.2f} s of each second for a CPU, those of its peers {peers:.2f} s"
    confined = bool(usage.cpus) and len(narrow) > len(others) / 2
    lines = [f"rank {rank} may only use CPU {_cpus(usage.cpus)}; {share}" if confined else f"rank {rank}: {share}"]
    rivals = [one for one in slow.others if not one.cpus or set(one.cpus) & set(usage.cpus)]
    if rivals:
        lines.append(f"beside the run: {_busy(rivals)}")
    sharing = [one.rank for one in others if one.cpus == usage.cpus and confined]
    if sharing:
        lines.append(f"{names(sharing)} may use no other CPUs either")
    remedy = (
        "give the rank the same CPUs as its peers (taskset, cpusets, --numa-binding)"
        if confined
        else "end or move the other processes, or bind ranks to CPUs of their own"
    )
    return Reason(
        "it does not get the CPU", tuple(lines), remedy, everywhere=peers >= NOTABLE and not confined, on_host=True
    )


def _paged(slow: Slowness, rank: int) -> Reason | None:
    usage = _usage(slow, rank)
    peers = [one.faults for one in slow.usage if one.rank != rank]
    if usage is None or usage.faults < FAULTS or usage.faults < MORE * (statistics.median(peers) if peers else 0.0):
        return None
    swap = f", {usage.swapped_bytes >> 20} MiB of it are swapped out" if usage.swapped_bytes else ""
    line = f"rank {rank} reads {usage.faults:.0f} pages a second back from disk (major page faults){swap}"
    return Reason(
        "its memory is read back from disk", (line,), "give the node or the container more memory", on_host=True
    )


def _held(slow: Slowness, rank: int) -> Reason | None:
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
    usage = _usage(slow, rank)
    peers = [one.cpu for one in slow.usage if one.rank != rank]
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
    usage, stands = _usage(slow, rank), _stands(slow, rank)
    if usage is None or usage.beside is None or stands is None or stands.beside is None:
        return None
    if stands.taken < HALF * stands.of or any(
        one.rank != rank and not one.worker and one.taken >= HALF * one.of for one in slow.standing
    ):
        return None  # they run now and then, or in each rank: other threads use that time, in native code
    peers = [one.beside for one in slow.usage if one.rank != rank and one.beside is not None]
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


def _crowded(slow: Slowness, rank: int) -> bool:
    """Whether the rank and its peers alike wait for CPUs: who comes off worst then changes all the time."""
    usage = _usage(slow, rank)
    peers = [one.queued for one in slow.usage if one.rank != rank and one.queued is not None]
    alike = usage is not None and usage.queued is not None and usage.queued >= NOTABLE
    return alike and bool(peers) and statistics.median(peers) >= NOTABLE


# -------------------------------------------------------------------------------------------------- all of them


def of_all(case: Case, slow: Slowness) -> Iterator[Reason]:
    """What has changed for all ranks since steps took as long as usual; the strongest first."""
    queued, queued_before = _median(slow.usage, "queued"), _median(slow.usage_before, "queued")
    if queued is not None and queued - (queued_before or 0.0) >= NOTABLE:
        before_ = f", {queued_before:.2f} s before" if queued_before is not None else ""
        line = f"the threads of a rank wait {queued:.2f} s of each second for a CPU{before_}"
        beside = f"beside the run: {_busy(slow.others)}" if slow.others else ""
        yield Reason("the ranks do not get the CPU", tuple(filter(None, (line, beside))), MOVE)
    throttled = slow.node.throttled if slow.node is not None else None
    before = slow.node_before.throttled if slow.node_before is not None else None
    if throttled is not None and throttled - (before or 0.0) >= NOTABLE:
        line = f"the CPU limit of the cgroup holds processes back {throttled:.0%} of the time{_before(before)}"
        yield Reason("the cgroup's CPU limit is reached", (line,), "raise the CPU limit of the container or the job")
    hungry = [pace.rank for pace in slow.paces if (pace.loading or 0.0) - (pace.loading_before or 0.0) >= NOTABLE]
    if hungry:
        found = loading(slow, hungry)
        yield Reason("ranks wait for their DataLoaders", found.because, found.remedy, found.location)
    faults, faults_before = _median(slow.usage, "faults") or 0.0, _median(slow.usage_before, "faults") or 0.0
    if faults >= FAULTS and faults >= MORE * faults_before:
        line = f"each rank reads {faults:.0f} pages a second back from disk, {faults_before:.0f} before"
        yield Reason("memory is read back from disk", (line,), "give the node or the container more memory")
    held = [gpu for gpu in case.gpus if gpu.held_back]
    if held:
        lines = tuple(held_back(gpu) for gpu in held)
        yield Reason("GPUs are held back", lines, "check cooling and power of the GPUs")
    least = min((pace.waiting or 0.0 for pace in slow.paces), default=0.0)
    least_before = min((pace.waiting_before or 0.0 for pace in slow.paces), default=0.0)
    if least - least_before >= 2 * NOTABLE and not slow.unknown and not slow.on_device:
        line = (
            f"even the rank that waits least spends {least:.0%} of its time in collectives, {least_before:.0%} before"
        )
        yield Reason("the collectives themselves take longer", (line,), "check the network and the links between GPUs")


MOVE = "end or move the other processes, or give the run more CPUs"


def grew_itself(slow: Slowness) -> bool:
    """Whether each rank simply computes more for a step than before: longer sequences, a larger model. CPU time says so
    only where nothing waits by spinning, which GPU jobs do."""
    now, before = _median(slow.usage, "cpu"), _median(slow.usage_before, "cpu")
    if now is None or before is None or before < NOTABLE or not slow.now_s or not slow.usual_s:
        return False
    return now >= 0.7 * before


GREW = Reason(
    "each rank computes more for it",
    ("their CPU time has grown with its length, and nothing else that is watched has changed",),
    "where the inputs do not grow, look for what is kept and gone through in each: a list, a cache, a graph",
)


def loading(slow: Slowness, ranks: Sequence[int]) -> Reason:
    """Why loaders are slow, from the numbers of their workers and from what these do."""
    paces = [pace for pace in slow.paces if pace.rank in ranks]
    workers = sorted({pace.workers for pace in paces})
    seen = [one for one in slow.standing if one.rank in ranks and one.worker]
    if workers == [0]:
        stands = next((one for one in slow.standing if one.rank in ranks and one.location is not None), None)
        own = "num_workers=0: the data is prepared in the rank's own process, between the steps"
        where = (f"there it stands most often {at(stands)}",) if stands is not None else ()
        return Reason("", (own, *where), "num_workers > 0 prepares data beside the steps", _place(stands))
    count = f"num_workers={workers[0]}" if len(workers) == 1 and workers[0] > 0 else "the loader's workers"
    best = max(seen, key=lambda one: one.times, default=None)
    if best is None or not best.of:
        return Reason(
            "", (f"{count}; what its workers do could not be seen",), "more workers (num_workers), or faster storage"
        )
    if best.held >= HALF * best.of or (best.file.startswith("/") and best.call in ("read", "pread64", "openat")):
        lines = (f"{count}; its workers wait for data{f' from {best.file}' if best.file else ''}, {at(best)}",)
        return Reason("", lines, "faster storage, or more workers (num_workers) to wait at once", _place(best))
    if best.running >= HALF * best.of:
        lines = (f"{count}; its workers compute, {at(best)}",)
        return Reason("", lines, "more workers (num_workers) if there are CPUs, or cheaper preparation", _place(best))
    return Reason("", (f"{count}; its workers wait, {at(best)}",), "look at the named line", _place(best))


def at_their_limit(slow: Slowness) -> bool | None:
    """Whether the loaders of the other ranks are as busy as that of the slow one: one of them must be the last, and the
    others' batches are ready only because they wait for it. None where their workers could not be seen; without workers
    the time in the loader says it all."""
    if all(pace.workers <= 0 for pace in slow.paces if pace.rank in slow.ranks):
        return False
    if all(pace.workers <= 0 for pace in slow.paces if pace.rank not in slow.ranks):
        return False
    peers = [one for one in slow.standing if one.worker and one.rank not in slow.ranks and one.of]
    busy = [one for one in peers if one.inside * 4 <= one.of]
    return len(busy) > len(peers) / 2 if peers else None


def idle_gpus(gpus: Iterable[GpuState]) -> str:
    """What is to be said of GPUs that have nothing to do for most of the time; nothing where they have."""
    known = [gpu for gpu in gpus if gpu.ranks and gpu.busy_percent is not None]
    idle = [gpu for gpu in known if (gpu.busy_percent or 0) < IDLE_GPU]
    if not idle or len(idle) * 2 <= len(known):
        return ""
    busy = statistics.median(gpu.busy_percent or 0 for gpu in idle)
    return f"{len(idle)} of {len(known)} GPUs are idle most of the time (busy {busy:.0f} %): they wait for the CPU"


# ------------------------------------------------------------------------------------------------------ helpers


def standing(slow: Slowness, rank: int) -> Standing | None:
    """Where a rank itself mostly stands, where that is one line: two looks or more, and a third of those in which it is
    not inside of torch. Of a slow rank it is the line at which the others stand less often."""
    one = _stands(slow, rank)
    if one is None or one.location is None:
        return None
    return one if one.times >= 2 and one.times * 3 >= one.of - one.inside else None


def _stands(slow: Slowness, rank: int) -> Standing | None:
    return next((one for one in slow.standing if one.rank == rank and not one.worker), None)


def at(one: Standing | None) -> str:
    """`at train.py:55 in work (5 of 6 looks)`."""
    if one is None or one.location is None:
        return "nowhere in particular"
    function = f" in {one.location.function}" if one.location.function else ""
    return f"at {one.location.file}:{one.location.line}{function} in {one.times} of {one.of} looks"


def idles(slow: Slowness, rank: int) -> bool:
    """Whether a rank uses little CPU time."""
    usage = _usage(slow, rank)
    return usage is not None and usage.cpu < HALF


def _place(one: Standing | None) -> Location | None:
    return one.location if one is not None else None


def _pace(slow: Slowness, rank: int) -> Pace:
    return next((pace for pace in slow.paces if pace.rank == rank), Pace(rank))


def _usage(slow: Slowness, rank: int) -> Usage | None:
    return next((one for one in slow.usage if one.rank == rank), None)


def _others(slow: Slowness, rank: int, value: Callable[[Pace], float | None]) -> float:
    found = [value(pace) or 0.0 for pace in slow.paces if pace.rank != rank and pace.rank not in slow.ranks]
    return statistics.median(found) if found else 0.0


def _median(usage: Sequence[Usage], name: str) -> float | None:
    found = [getattr(one, name) for one in usage if getattr(one, name) is not None]
    return statistics.median(found) if found else None


def _before(share: float | None) -> str:
    return f", {share:.0%} before" if share is not None else ""


def _cpus(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus[:8])) + (", ..." if len(cpus) > 8 else "")


def _busy(others: Sequence[Busy]) -> str:
    shown = ", ".join(f"{one.name} (pid {one.pid}) uses {one.cores:.1f} cores" for one in others[:3])
    return shown if len(others) <= 3 else f"{shown}, and others {sum(one.cores for one in others[3:]):.1f}"


def held_back(gpu: GpuState) -> str:
    who = f" ({names(gpu.ranks)})" if gpu.ranks else ""
    clock = f", {gpu.clock_mhz} of {gpu.clock_max_mhz} MHz" if gpu.clock_mhz and gpu.clock_max_mhz else ""
    return f"GPU {gpu.index}{who} is held back: {', '.join(gpu.held_back)}{clock}"


def since(slow: Slowness) -> str:
    """` since step 41`, or from the first steps that were looked at."""
    return f" since {slow.unit} {slow.since}" if slow.since is not None else " from the first steps on"


def span(seconds: float | None) -> str:
    """A time of steps, in words."""
    if seconds is None:
        return "?"
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

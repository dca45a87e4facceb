"""Why runs are slow: what a reason is, and what several of them read from the looks of the watch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.wording import names
from safelaunch.model import Confidence, GpuState, Location
from safelaunch.model.slow import Busy, Pace, Slowness, Standing, Usage

MOST = 0.4  # of the lost time: what accounts for so much is a reason; an estimate
NOTABLE = 0.15  # of all time, in which something happens that did not happen before
FAULTS = 50.0  # pages a second that come from a disk, at 0.1 ms (an SSD) to 10 ms each; an estimate
MORE = 5.0  # times as many as those of the others, or as before
IDLE_GPU = 50  # percent
HALF = 0.5
HOSTS = 4  # that are named in a line


@dataclass(frozen=True)
class Reason:
    """Why a rank is slow, or all of them.

    Args:
        what: completes "rank 1 is slow: it ...".
        because: the lines that show it.
        remedy: what to do.
        location: the line of the program that it is about.
        shown: a source of its own shows it (/proc, the loader's time, stacks).
        everywhere: it is the same for all ranks.
        loader: it is the loader.
        on_host: nothing that a wait for the rank's own GPU looks like.
    """

    what: str
    because: tuple[str, ...]
    remedy: str
    location: Location | None = None
    shown: bool = True
    everywhere: bool = False
    loader: bool = False
    on_host: bool = False


@dataclass(frozen=True)
class Lateness:
    """What is said of ranks that come last."""

    summary: str
    because: tuple[str, ...]
    remedy: str
    confidence: Confidence
    location: Location | None = None


# ------------------------------------------------------------------------------------------------------ loaders


def loading(slow: Slowness, ranks: Sequence[int]) -> Reason:
    """Why loaders are slow, from the numbers of their workers and from what these do."""
    paces = [pace for pace in slow.paces if pace.rank in ranks]
    workers = sorted({pace.workers for pace in paces})
    seen = [one for one in slow.standing if one.rank in ranks and one.worker]
    if workers == [0]:
        return _without_workers(slow, ranks)
    count = f"num_workers={workers[0]}" if len(workers) == 1 and workers[0] > 0 else "the loader's workers"
    best = max(seen, key=lambda one: one.times, default=None)
    if best is None or not best.of:
        return Reason(
            "", (f"{count}; what its workers do could not be seen",), "more workers (num_workers), or faster storage"
        )
    if _reads(best):
        lines = (f"{count}; its workers wait for data{f' from {best.file}' if best.file else ''}, {at(best)}",)
        return Reason("", lines, "faster storage, or more workers (num_workers) to wait at once", best.location)
    if best.running >= HALF * best.of:
        lines = (f"{count}; its workers compute, {at(best)}",)
        return Reason("", lines, "more workers (num_workers) if there are CPUs, or cheaper preparation", best.location)
    return Reason("", (f"{count}; its workers wait, {at(best)}",), "look at the named line", best.location)


def _without_workers(slow: Slowness, ranks: Sequence[int]) -> Reason:
    stands = next((one for one in slow.standing if one.rank in ranks and one.location is not None), None)
    own = "num_workers=0: the data is prepared in the rank's own process, between the steps"
    remedy = "num_workers > 0 prepares data beside the steps"
    if stands is None:
        return Reason("", (own,), remedy)
    return Reason("", (own, f"there it stands most often {at(stands)}"), remedy, stands.location)


def _reads(worker: Standing) -> bool:
    """Whether a worker of a loader mostly waits for a disk or a file system."""
    reads = worker.file.startswith("/") and worker.call in ("read", "pread64", "openat")
    return reads or worker.held >= HALF * worker.of


def at_their_limit(slow: Slowness) -> bool | None:
    """Whether the loaders of the other ranks are as busy as that of the slow one.

    One of them must be the last then, and the others' batches are ready only because they wait for it. None where their
    workers could not be seen. Without workers the time in the loader says it all.
    """
    if all(pace.workers <= 0 for pace in slow.paces if pace.rank in slow.ranks):
        return False
    if all(pace.workers <= 0 for pace in slow.paces if pace.rank not in slow.ranks):
        return False
    peers = [one for one in slow.standing if one.worker and one.rank not in slow.ranks and one.of]
    busy = [one for one in peers if one.inside * 4 <= one.of]
    return len(busy) > len(peers) / 2 if peers else None


# --------------------------------------------------------------------------------------------------------- GPUs


def idle_gpus(gpus: Iterable[GpuState]) -> str:
    """What is to be said of GPUs that have nothing to do for most of the time; nothing where they have."""
    percents = [gpu.busy_percent for gpu in gpus if gpu.ranks and gpu.busy_percent is not None]
    idle = [percent for percent in percents if percent < IDLE_GPU]
    if not idle or len(idle) * 2 <= len(percents):
        return ""
    busy = f"busy {statistics.median(idle):.0f} %"
    return f"{len(idle)} of {len(percents)} GPUs are idle most of the time ({busy}): they wait for the CPU"


def held_back(gpu: GpuState) -> str:
    """`GPU 1 (rank 1) is held back: heat, 900 of 1980 MHz`."""
    who = f" ({names(gpu.ranks)})" if gpu.ranks else ""
    clock = f", {gpu.clock_mhz} of {gpu.clock_max_mhz} MHz" if gpu.clock_mhz and gpu.clock_max_mhz else ""
    return f"GPU {gpu.index}{who} is held back: {', '.join(gpu.held_back)}{clock}"


# ------------------------------------------------------------------------------------------- where a rank stands


def standing(slow: Slowness, rank: int) -> Standing | None:
    """Where a rank itself mostly stands, where that is one line: two looks or more, and a third of those in which it is
    not inside of torch. Of a slow rank it is the line at which the others stand less often."""
    one = stands_of(slow, rank)
    if one is None or one.location is None:
        return None
    return one if one.times >= 2 and one.times * 3 >= one.of - one.inside else None


def any_standing(slow: Slowness) -> Standing | None:
    """The first rank that mostly stands at one line."""
    return next((one for pace in slow.paces if (one := standing(slow, pace.rank)) is not None), None)


def stands_of(slow: Slowness, rank: int) -> Standing | None:
    """What the looks at a rank itself have found."""
    return next((one for one in slow.standing if one.rank == rank and not one.worker), None)


def at(one: Standing | None) -> str:
    """`at train.py:55 in work (5 of 6 looks)`."""
    if one is None or one.location is None:
        return "nowhere in particular"
    function = f" in {one.location.function}" if one.location.function else ""
    return f"at {one.location.file}:{one.location.line}{function} in {one.times} of {one.of} looks"


def idles(slow: Slowness, rank: int) -> bool:
    """Whether a rank uses little CPU time."""
    usage = usage_of(slow, rank)
    return usage is not None and usage.cpu < HALF


# --------------------------------------------------------------------------------------------- numbers and words


def pace_of(slow: Slowness, rank: int) -> Pace:
    """How a rank spends its time; nothing is known of one that was not looked at."""
    return next((pace for pace in slow.paces if pace.rank == rank), Pace(rank))


def usage_of(slow: Slowness, rank: int) -> Usage | None:
    """What the process of a rank uses."""
    return next((one for one in slow.usage if one.rank == rank), None)


def median_of(usage: Sequence[Usage], name: str) -> float | None:
    """The median of a number of all ranks of which it is known."""
    found = [getattr(one, name) for one in usage if getattr(one, name) is not None]
    return statistics.median(found) if found else None


def busiest(others: Sequence[Busy]) -> str:
    """`dd (pid 12) uses 1.0 cores`: the first few of the processes beside the run."""
    shown = ", ".join(f"{one.name} (pid {one.pid}) uses {one.cores:.1f} cores" for one in others[:3])
    return shown if len(others) <= 3 else f"{shown}, and others {sum(one.cores for one in others[3:]):.1f}"


def are_slow(slow: Slowness) -> str:
    """`rank 3 is slow since step 41`."""
    return f"{who(slow)} {'is' if len(slow.ranks) == 1 else 'are'} slow{since(slow)}"


def who(slow: Slowness) -> str:
    """`rank 3`; with several nodes `rank 3 on node-b`, or `all ranks of node-b (2 and 3)`."""
    nodes = [node for node in slow.nodes if node.late]
    whole = [node for node in nodes if len(node.ranks) > 1 and node.late == node.ranks]
    if not nodes:
        return names(slow.ranks)
    hosts = ", ".join(one.host for one in nodes[:HOSTS]) + (", ..." if len(nodes) > HOSTS else "")
    if len(whole) == len(nodes):
        return f"all ranks of {hosts} ({names(slow.ranks).partition(' ')[2]})"
    return f"{names(slow.ranks)} on {hosts}"


def is_whole_node(slow: Slowness) -> bool:
    """Whether all ranks of a node come last, and none of another."""
    late = [node for node in slow.nodes if node.late]
    return len(late) == 1 and late[0].late == late[0].ranks


def with_reason(summary: str, reason: Reason) -> str:
    """A summary that goes on with its reason, where there is one in words."""
    return f"{summary}; {reason.what}" if reason.what else summary


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

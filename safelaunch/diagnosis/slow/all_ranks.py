"""What has changed for all ranks since steps took as long as usual: the CPU, loaders, memory, clocks, collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from safelaunch.diagnosis.slow import nodes
from safelaunch.diagnosis.slow.reasons import FAULTS, MORE, NOTABLE, Reason, busiest, held_back, loading, median_of
from safelaunch.model import Case
from safelaunch.model.slow import Slowness

GPUS_HELD_BACK = "GPUs are held back"
LONGER_WAITS = "the network is slower, or a rank of another node"
OTHERS_UNSEEN = "the ranks of other nodes are not known here: one of them may be slower"


def of_all(case: Case, slow: Slowness) -> Iterator[Reason]:
    """What has changed for all ranks since steps took as long as usual; the strongest first."""
    for reason in (
        _queued(slow),
        _throttled(slow),
        _loading(slow),
        _paged(slow),
        _clocks(case),
        _collectives(case, slow),
    ):
        if reason is not None:
            yield reason


def _queued(slow: Slowness) -> Reason | None:
    queued, before = median_of(slow.usage, "queued"), median_of(slow.usage_before, "queued")
    if queued is None or queued - (before or 0.0) < NOTABLE:
        return None
    then = f", {before:.2f} s before" if before is not None else ""
    lines = [f"the threads of a rank wait {queued:.2f} s of each second for a CPU{then}"]
    lines += [f"beside the run: {busiest(slow.others)}"] if slow.others else []
    remedy = "end or move the other processes, or give the run more CPUs"
    return Reason("the ranks do not get the CPU", tuple(lines), remedy)


def _throttled(slow: Slowness) -> Reason | None:
    throttled = slow.node.throttled if slow.node is not None else None
    before = slow.node_before.throttled if slow.node_before is not None else None
    if throttled is None or throttled - (before or 0.0) < NOTABLE:
        return None
    then = f", {before:.0%} before" if before is not None else ""
    line = f"the CPU limit of the cgroup holds processes back {throttled:.0%} of the time{then}"
    return Reason("the cgroup's CPU limit is reached", (line,), "raise the CPU limit of the container or the job")


def _loading(slow: Slowness) -> Reason | None:
    hungry = [pace.rank for pace in slow.paces if (pace.loading or 0.0) - (pace.loading_before or 0.0) >= NOTABLE]
    if not hungry:
        return None
    found = loading(slow, hungry)
    return Reason("ranks wait for their DataLoaders", found.because, found.remedy, found.location, loader=True)


def _paged(slow: Slowness) -> Reason | None:
    faults, before = median_of(slow.usage, "faults") or 0.0, median_of(slow.usage_before, "faults") or 0.0
    if faults < FAULTS or faults < MORE * before:
        return None
    line = f"each rank reads {faults:.0f} pages a second back from disk, {before:.0f} before"
    return Reason("memory is read back from disk", (line,), "give the node or the container more memory")


def _clocks(case: Case) -> Reason | None:
    lines = tuple(held_back(gpu) for gpu in case.gpus if gpu.held_back)
    return Reason(GPUS_HELD_BACK, lines, "check cooling and power of the GPUs") if lines else None


def _collectives(case: Case, slow: Slowness) -> Reason | None:
    """That even the rank that waits least waits longer: nobody is late, or it cannot be seen."""
    least = min((pace.waiting or 0.0 for pace in slow.paces), default=0.0)
    before = min((pace.waiting_before or 0.0 for pace in slow.paces), default=0.0)
    if least - before < 2 * NOTABLE or slow.unknown or slow.on_device:
        return None
    line = f"even the rank that waits least spends {least:.0%} of its time in collectives, {before:.0%} before"
    if of_more_nodes(case):
        remedy = "see whether another node names a slow rank; else check the network"
        return Reason(LONGER_WAITS, (line, OTHERS_UNSEEN), remedy)
    by_link = nodes.link(slow)
    if by_link is not None:
        return dataclasses.replace(by_link, because=(*by_link.because, line))
    if slow.nodes:
        which = "which link cannot be told: no groups without a node are there to be compared"
        return Reason("the collectives themselves take longer", (line, which), "check the network between the nodes")
    return Reason("the collectives themselves take longer", (line,), "check the network and the links between GPUs")


def of_more_nodes(case: Case) -> bool:
    """Whether there are ranks on nodes of which nothing is known here."""
    return case.world_size > len(case.ranks) and not (case.slow is not None and case.slow.nodes)


def grew_itself(slow: Slowness) -> bool:
    """Whether each rank simply computes more for a step than before: longer sequences, a larger model. CPU time says so
    only where nothing waits by spinning, which GPU jobs do."""
    now, before = median_of(slow.usage, "cpu"), median_of(slow.usage_before, "cpu")
    if now is None or before is None or before < NOTABLE or not slow.now_s or not slow.usual_s:
        return False
    return now >= 0.7 * before


GREW = Reason(
    "each rank computes more for it",
    ("their CPU time has grown with its length, and nothing else that is watched has changed",),
    "where the inputs do not grow, look for what is kept and gone through in each: a list, a cache, a graph",
)

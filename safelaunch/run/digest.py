"""What the other nodes see of this one's case: times of the hub's clock, no secrets that are known as such, no texts of
stacks, which no rule reads, and no more than the hub has time and room for.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from safelaunch import redaction
from safelaunch.cluster.frames import FrameError, packed
from safelaunch.cluster.messages import Seen
from safelaunch.evidence.offline.nodes import shifted
from safelaunch.model import Case, Collective, GpuState, RankFacts, Stack

RANK_BYTES = 32 << 10  # that a rank may take on the wire; with a full ring of calls and eight threads it takes 2 KB
CALLS = 1 << 16  # of the whole job, by each record: the hub needs some 15 µs and 1 KB for each
FEWEST = 12  # latest calls of a rank that are shown in the largest job
OF_GROUP = 2  # latest calls of each group that are shown in any case: they tell how far the rank is there
ALL_GROUPS = 1024  # ranks, up to which all calls of `new_group` are shown: their number grows with that of the ranks
ALL_GPUS = 1024  # ranks, up to which GPUs are shown of which there is nothing to tell
RAS = 8 << 10  # characters of what NCCL's own threads say
XIDS, TENANTS = 16, 16  # latest lines of the driver's log, and processes, of a GPU


def digest(case: Case, by: float) -> Case:
    """What is shown of a case.

    How much that is depends on the size of the job alone, so that no rank seems to have done less than another; only
    of a node that takes too much all the same less is shown.

    Args:
        case: of this node.
        by: what the hub's clock shows more than this one's, in seconds.
    """
    case = shifted(_each(case, _plain), by)
    gpus = (gpu for gpu in case.gpus if case.world_size <= ALL_GPUS or _is_telling(gpu))
    case = dataclasses.replace(case, gpus=tuple(map(_shortened, gpus)), ras=case.ras[:RAS])
    if case.world_size > ALL_GROUPS:
        case = _each(case, lambda facts: dataclasses.replace(facts, new_groups=()))
    case = _latest(case, max(FEWEST, CALLS // max(1, case.world_size)))
    return next((shown for shown in _smaller(case) if _fits(shown)), _smallest(case))


def _smaller(case: Case) -> Iterator[Case]:
    yield case
    yield _latest(case, FEWEST)
    yield _each(_latest(case, FEWEST), _bare)


def _smallest(case: Case) -> Case:
    gpus = tuple(gpu for gpu in case.gpus if _is_telling(gpu))
    return dataclasses.replace(_each(_latest(case, 0), _bare), groups=(), source=(), gpus=gpus, ras="")


def _is_telling(gpu: GpuState) -> bool:
    """Whether the driver says that something is wrong with a GPU."""
    return bool(gpu.lost or gpu.xids or gpu.links_down or gpu.ecc_errors)


def _shortened(gpu: GpuState) -> GpuState:
    tenants = (dataclasses.replace(one, command=redaction.text(one.command)) for one in gpu.tenants[:TENANTS])
    return dataclasses.replace(gpu, xids=gpu.xids[-XIDS:], tenants=tuple(tenants))


def _fits(case: Case) -> bool:
    try:
        return len(packed(Seen(0, case))) <= RANK_BYTES * len(case.ranks)
    except FrameError:
        return False


def _each(case: Case, shown: Callable[[RankFacts], RankFacts]) -> Case:
    return dataclasses.replace(case, ranks=tuple(map(shown, case.ranks)))


def _plain(facts: RankFacts) -> RankFacts:
    return dataclasses.replace(
        facts,
        last_lines=tuple(map(redaction.text, facts.last_lines)),
        fault=_without_text(facts.fault),
        stack=_without_text(facts.stack),
        earlier=_without_text(facts.earlier),
        stacks=tuple(dataclasses.replace(stack, text="") for stack in facts.stacks),
    )


def _without_text(stack: Stack | None) -> Stack | None:
    return dataclasses.replace(stack, text="") if stack is not None else None


def _bare(facts: RankFacts) -> RankFacts:
    """Without what few rules ask for."""
    return dataclasses.replace(facts, stacks=(), last_lines=(), children=(), loaders=(), new_groups=(), tasks=())


def _latest(case: Case, count: int) -> Case:
    """The case with the latest calls of each rank's records."""
    return _each(case, lambda facts: _with_latest(facts, count))


def _with_latest(facts: RankFacts, count: int) -> RankFacts:
    own, recorded = _shown(facts.collectives, count), facts.recorded
    if recorded is not None:
        recorded = _shown(recorded, count)
    overwritten = facts.overwritten or len(recorded or ()) < len(facts.recorded or ())
    return dataclasses.replace(facts, collectives=own, recorded=recorded, overwritten=overwritten)


def _shown(calls: tuple[Collective, ...], count: int) -> tuple[Collective, ...]:
    """The latest calls, those of each group, and all that have not ended."""
    if len(calls) <= count:
        return calls
    seen: Counter[tuple[str, bool]] = Counter()
    kept = []
    for place, call in enumerate(reversed(calls)):
        kind = call.group, call.is_message
        seen[kind] += 1
        if place < count or seen[kind] <= OF_GROUP or not call.done:
            kept.append(call)
    return tuple(reversed(kept))

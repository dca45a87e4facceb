"""A job of N nodes of which one rank does not come to a collective: the case that each node's supervisor has of it.

The ranks are those of the golden cases (tests/unit/diagnosis/hang_scenes.py), with as much of each kind of evidence as
a run's look brings: a full ring of calls in three groups, the Flight Recorder's latest, the stacks of eight threads.
"""

from __future__ import annotations

import dataclasses
import random
import sys

from pairs import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests" / "unit" / "diagnosis"))

from hang_scenes import ASLEEP, LOADER_WAIT, as_recorded, call, done, elsewhere, hang, stack, waiting
from scenes import STEP, T

from safelaunch.black_box import ENTRIES
from safelaunch.evidence.flight_recorder import LAST
from safelaunch.model import Case, Collective, ProcessGroup, RankFacts

RANKS = 8  # of a node
THREADS = 7  # beside the main one


def culprit(nodes: int) -> int:
    """The rank that sleeps: on a node that is not the first."""
    return RANKS * (nodes * 3 // 4) + 3


def case(node: int, nodes: int) -> Case:
    """What the look of this node sees."""
    size = RANKS * nodes
    ranks = [_rank(RANKS * node + local, nodes) for local in range(RANKS)]
    across = [ProcessGroup(_across(local, nodes), tuple(range(local, size, RANKS))) for local in range(RANKS)]
    here = ProcessGroup(_here(node), tuple(range(RANKS * node, RANKS * (node + 1))))
    groups = (ProcessGroup("0", tuple(range(size))), here, *across)
    found = hang(*ranks, groups=groups, world_size=size)
    return dataclasses.replace(found, host=f"node-{node}")


def _here(node: int) -> str:
    return str(1 + node)


def _across(local: int, nodes: int) -> str:
    return str(1 + nodes + local)


def _rank(rank: int, nodes: int) -> RankFacts:
    node, local = divmod(rank, RANKS)
    now = call(size=RANKS * nodes)
    before = _before(node, local, now, nodes)
    late = rank == culprit(nodes)
    facts = elsewhere(rank, ASLEEP, STEP, before=before) if late else waiting(rank, *before, now)
    others = tuple(
        stack(facts.pid, *LOADER_WAIT, thread=10 * facts.pid + n, name=f"Thread-{n}") for n in range(THREADS)
    )
    chance = random.Random(rank)
    return dataclasses.replace(
        facts,
        local_rank=local,
        stacks=(*facts.stacks, *others),
        collectives=_measured(facts.collectives, chance),
        recorded=_measured(as_recorded(facts.collectives[-3 * LAST :]), chance),
        beat_age_s=round(0.1 * chance.random(), 6),
        quiet_s=round(8 + chance.random(), 3),
    )


def _measured(calls: tuple[Collective, ...], chance: random.Random) -> tuple[Collective, ...]:
    """The calls at times to the nanosecond, which do not compress."""
    return tuple(dataclasses.replace(one, t=one.t + round(0.001 * chance.random(), 9)) for one in calls)


def _before(node: int, local: int, now: Collective, nodes: int) -> tuple[Collective, ...]:
    """The ring of calls before this one: in each step the ranks of a node meet eight times, and those across twice."""
    found: list[Collective] = []
    step = 0
    while len(found) < ENTRIES - 1:
        step += 1
        seq = now.seq - step
        t = T - 1.1 * step
        here = [call(seq=500 + 8 * seq + n, group=_here(node), size=RANKS, t=t - 0.01 * n) for n in range(8)]
        across = [call(seq=500 + 2 * seq + n, group=_across(local, nodes), size=nodes, t=t - 0.1) for n in range(2)]
        world = [call(seq=seq, size=RANKS * nodes, t=t)] if seq > 0 else []
        found += [done(one) for one in (*world, *here[::-1], *across[::-1])]
    return tuple(found[: ENTRIES - 1][::-1])

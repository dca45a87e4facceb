"""Hypothesis strategies for whole incidents: one true culprit (or none), and peers that react as peers do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from scenes import (
    DATA,
    GLOO_CLOSED,
    GLOO_RESET,
    GLOO_SIZE,
    MODEL,
    NCCL_REMOTE,
    STEP,
    STORE_GONE,
    T,
    aborted_in_collective,
    all_reduce,
    barrier,
    called_exit,
    case,
    crashed,
    exited,
    lost_peer,
    raised,
    rank,
    shutting_down,
)

from safelaunch.model import Case, Collective, Location, ProcessGroup, RankFacts
from safelaunch.model.slow import Slowness

# What one rank does to all: each is the act of the culprit alone.
ACTS = ("exception", "import", "segfault", "abort", "sigkill", "oom", "exit_call", "native_exit", "leave")
MISMATCHES = ("size", "operation")
NO_CULPRIT = ("network", "everyone")

CONSEQUENCES = (GLOO_CLOSED, GLOO_RESET, NCCL_REMOTE, STORE_GONE, "Broken pipe", "Connection refused")
KINDS = ("error", "fault", "black_box", "stack")


@dataclass(frozen=True)
class Story:
    """`culprits` is what truly happened, not what a rule says."""

    act: str
    case: Case
    culprits: tuple[int, ...]


def act(kind: str, facts: RankFacts, slow: float) -> RankFacts:
    """The culprit's part. `slow` is how long its interpreter takes to shut down."""
    if kind == "exception":
        return raised(facts, "ValueError", "loss is nan", ended_after=slow)
    if kind == "import":
        return raised(facts, "ModuleNotFoundError", "No module named 'apex'", ended_after=slow)
    if kind == "segfault":
        return crashed(facts, 11, Location(MODEL, 40, "forward"), STEP)
    if kind == "abort":
        return crashed(facts, 6, Location(MODEL, 40, "forward"), STEP)
    if kind in ("sigkill", "oom"):
        return exited(facts, -9, T)
    if kind == "exit_call":
        return exited(called_exit(facts, "3"), 3, T + 0.01)
    if kind == "native_exit":
        return exited(facts, 3, T)
    if kind == "leave":
        return exited(shutting_down(dataclasses.replace(facts, collectives=facts.collectives[:-1])), 0, T + 0.05)
    raise AssertionError(kind)


@st.composite
def reactions(draw: st.DrawFn, facts: RankFacts) -> RankFacts:
    """A peer that lost the culprit: it raises, is aborted by its communication library, or still waits."""
    after = draw(st.floats(0.011, 0.4).map(lambda t: round(t, 3)))
    how = draw(st.sampled_from(("raises", "raises", "is raising", "aborts", "waits")))
    if how == "waits":
        return facts
    if how == "aborts":
        return aborted_in_collective(facts, t=T + after)
    message = draw(st.sampled_from(CONSEQUENCES))
    return lost_peer(facts, t=T + after, message=message, ended=how == "raises")


@st.composite
def stories(draw: st.DrawFn, kinds: tuple[str, ...] = ACTS + MISMATCHES + NO_CULPRIT) -> Story:
    """One incident on a node of two to eight ranks; in the order of `kinds` from simple to odd."""
    kind = draw(st.sampled_from(kinds))
    few = 3 if kind in MISMATCHES else 2  # two that disagree have no majority
    size = draw(st.integers(few, 8))
    chosen = draw(st.integers(0, size - 1))
    healthy = [rank(number, inside=(all_reduce(11, done=True, t=T - 1.2, size=size), all_reduce(size=size)))
               for number in range(size)]  # fmt: skip
    if kind == "everyone":
        at = Location(DATA, 12, "open_shard")
        ranks = [
            raised(facts, "FileNotFoundError", "/data/shard", t=T + 0.001 * facts.rank, at=at) for facts in healthy
        ]
        return Story(kind, case(*ranks), ())
    ranks = [facts if facts.rank == chosen else draw(reactions(facts)) for facts in healthy]
    if kind == "network":
        ranks[chosen] = lost_peer(healthy[chosen], t=T)
        return Story(kind, case(*ranks, world_size=2 * size), ())
    if kind in MISMATCHES:
        odd = all_reduce(numel=10, size=size) if kind == "size" else barrier(size=size)
        culprit = dataclasses.replace(healthy[chosen], collectives=(healthy[chosen].collectives[0], odd))
        # gloo complains on whoever receives the wrong bytes.
        victim = (chosen + 1) % size
        ranks[chosen] = draw(reactions(culprit))
        ranks[victim] = lost_peer(healthy[victim], t=T, message=GLOO_SIZE)
        return Story(kind, case(*ranks), (chosen,))
    ranks[chosen] = act(kind, healthy[chosen], draw(st.sampled_from((0.05, 0.3, 2.0))))
    if kind == "leave" and all(facts.exit is None and facts.error is None for facts in ranks if facts.rank != chosen):
        return Story(kind, case(*ranks, groups=(ProcessGroup("0", tuple(range(size))),)), (chosen,))
    return Story(kind, case(*ranks, oom_kills=1 if kind == "oom" else 0), (chosen,))


def permuted(incident: Case, order: list[int]) -> Case:
    """The same incident with rank `n` called `order[n]`, in the order of the new numbers. Ranks that the case does not
    hold keep their numbers."""
    number = dict(enumerate(order))

    def calls(made: tuple[Collective, ...]) -> tuple[Collective, ...]:
        return tuple(
            one if one.peer is None else dataclasses.replace(one, peer=number.get(one.peer, one.peer)) for one in made
        )

    def members(group: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(number.get(rank, rank) for rank in group))

    ranks = [
        dataclasses.replace(
            facts,
            rank=number[facts.rank],
            local_rank=number[facts.rank],
            collectives=calls(facts.collectives),
            recorded=None if facts.recorded is None else calls(facts.recorded),
            new_groups=tuple(members(group) for group in facts.new_groups),
        )
        for facts in incident.ranks
    ]
    groups = tuple(ProcessGroup(group.name, members(group.ranks)) for group in incident.groups)
    blamed = tuple(number[rank] for rank in incident.incident.ranks)
    return dataclasses.replace(
        incident,
        incident=dataclasses.replace(incident.incident, ranks=blamed),
        ranks=tuple(sorted(ranks, key=lambda facts: facts.rank)),
        groups=groups,
        gpus=tuple(dataclasses.replace(gpu, ranks=tuple(number.get(n, n) for n in gpu.ranks)) for gpu in incident.gpus),
        slow=None if incident.slow is None else _slow(incident.slow, number),
    )


def _slow(slow: Slowness, number: Mapping[int, int]) -> Slowness:
    """What was seen of a slow run, under the new numbers."""

    def renamed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(item, rank=number.get(item.rank, item.rank)) for item in items)

    parts = {
        name: renamed(getattr(slow, name))
        for name in ("paces", "usage", "usage_before", "standing", "devices", "devices_before")
    }
    return dataclasses.replace(slow, ranks=tuple(sorted(number.get(rank, rank) for rank in slow.ranks)), **parts)


def without(incident: Case, number: int, kind: str) -> Case:
    """The same incident with one piece of evidence of one rank lost."""
    lost = {
        "error": {"error": None},
        "fault": {"fault": None},
        "stack": {"stack": None},
        "black_box": {"collectives": (), "exit_call": None, "shut_down": None},
    }[kind]
    ranks = tuple(
        dataclasses.replace(facts, **lost) if facts.rank == number else facts  # type: ignore[arg-type]
        for facts in incident.ranks
    )
    return dataclasses.replace(incident, ranks=ranks)


def pieces(incident: Case) -> list[tuple[int, str]]:
    """Each piece of evidence that a case has: (rank, kind)."""
    found = []
    for facts in incident.ranks:
        has = {"error": facts.error, "fault": facts.fault, "stack": facts.stack,
               "black_box": facts.collectives or facts.exit_call or facts.shut_down}  # fmt: skip
        found += [(facts.rank, kind) for kind in KINDS if has[kind]]
    return found

"""Hypothesis strategies for whole hangs: who does not come and why, and who waits for it, and how."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hang_scenes import (
    ASLEEP,
    BARRIER,
    BEHIND_LOOP,
    BUSY,
    COMPUTING,
    FOR_CHILD,
    GATHER,
    IDLE,
    IN_D,
    INIT,
    INSIDE_LOOP,
    LOADER_HERE,
    LOADER_WAIT,
    LOCKED,
    POLLING,
    READING,
    SAVE,
    STOPPED,
    as_recorded,
    call,
    done,
    elsewhere,
    hang,
    in_cpp,
    library,
    loader_worker,
    recv,
    waiting,
    world,
)
from hypothesis import strategies as st
from scenes import STEP, TORCH

from safelaunch.model import Case, Collective, Gap, Kernel, Location, ProcessGroup, RankFacts

# Why a rank does not come -> the code of it.
REASONS = {
    "sleep": "SL301", "poll": "SL301", "lock": "SL301", "subprocess": "SL301", "computing": "SL301", "compile": "SL301",
    "stopped": "SL304", "gil": "SL305", "uninterruptible": "SL306", "child": "SL306", "loader": "SL307",
    "worker": "SL307", "checkpoint": "SL308",
}  # fmt: skip
SHAPES = ("world", "cpp", "subgroup", "cpp subgroup", "grid", "chain", "init", "nodes")
APART = ("operation", "left", "circle", "order")
NOBODY = ("inside", "two sides")


@dataclass(frozen=True)
class Hang:
    """`culprits` and `code` are what truly happened; `idle` are ranks that have nothing to do with it."""

    kind: str
    case: Case
    culprits: tuple[int, ...]
    code: str
    idle: tuple[int, ...] = ()


def away(reason: str, number: int, before: tuple[Collective, ...]) -> RankFacts:
    """A rank that does something else than its next collective."""
    files: dict[str, tuple[Kernel, tuple[Location, ...], dict[str, object]]] = {
        "sleep": (ASLEEP, (STEP,), {}),
        "poll": (POLLING, (library("selectors.py", 415, "select"), STEP), {}),
        "lock": (LOCKED, (STEP,), {}),
        "subprocess": (FOR_CHILD, (library("subprocess.py", 1264, "wait"), STEP), {}),
        "computing": (COMPUTING, (STEP,), {}),
        "compile": (COMPUTING, (Location(f"{TORCH}/_dynamo/x.py", 1, "f"), STEP), {"phase": "compile"}),
        "stopped": (STOPPED, (STEP,), {"beat_age_s": 8.0}),
        "gil": (COMPUTING, (STEP,), {"beat_age_s": 7.9}),
        "uninterruptible": (IN_D, (SAVE,), {}),
        "child": (POLLING, LOADER_WAIT, {"phase": "loader", "children": (_worker(5100, IN_D), _worker(5101))}),
        "loader": (READING, LOADER_HERE, {"phase": "loader"}),
        "worker": (POLLING, LOADER_WAIT, {"phase": "loader", "children": (_worker(5100), _worker(5101, READING))}),
        "checkpoint": (Kernel("S", "", "fsync", "/ckpt/a"), (SAVE,), {"phase": "checkpoint save"}),
    }
    kernel, frames, more = files[reason]
    return elsewhere(number, kernel, *frames, before=before, **more)  # type: ignore[arg-type]


def _worker(pid: int, kernel: Kernel = POLLING):  # type: ignore[no-untyped-def]
    return loader_worker(pid, *(IDLE if kernel is POLLING else BUSY), kernel=kernel)


def missing(shape: str, reason: str, size: int, culprit: int, second: int | None) -> Hang:
    """One rank, or two, that others wait for."""
    late = {culprit} if second is None else {culprit, second}
    others = [n for n in range(size) if n not in late]
    world_size, idle = size * 2 if shape == "nodes" else size, []
    one = call(size=world_size)
    last = (done(one, 11),)
    if shape in ("world", "nodes", "cpp"):
        if shape == "cpp":
            one = dataclasses.replace(one, location=None)
        waiters = {n: in_cpp(waiting(n, one)) if shape == "cpp" else waiting(n, one) for n in others}
        groups: tuple[ProcessGroup, ...] = (world(world_size),)
    elif shape == "init":
        one, last = call("init_process_group", 1, group="init", at=INIT, size=size), ()
        waiters = {n: waiting(n, one) for n in others}
        groups = (ProcessGroup("init", tuple(range(size))),)
    elif shape.endswith("subgroup"):
        # Whoever is not in it computes on its own.
        members = tuple(sorted({*late, *others[::2]}))
        idle = [n for n in others if n not in members]
        one = call(seq=5, group="3", size=len(members))
        last = (done(one, 4), done(call(size=size), 11))
        waiters = {n: waiting(n, done(call(size=size), 11), done(one, 4), one) for n in members if n not in late}
        if shape == "cpp subgroup":
            waiters = {n: in_cpp(facts) for n, facts in waiters.items()}
        waiters |= {n: elsewhere(n, COMPUTING, STEP, before=(done(call(size=size), 11),)) for n in idle}
        groups = (world(size), ProcessGroup("3", members))
    elif shape == "grid":
        # Each waits in a group of two for the next, up to the culprit; the rest of a ring.
        ring = [(culprit + n) % size for n in range(size)]
        pairs = {f"{10 + n}": (ring[n], ring[n - 1]) for n in range(1, size)}
        by_rank = {
            ring[n]: [done(call(seq=7, group=f"{11 + n}", size=2))] * (n + 1 < size)
            + [call(seq=5, group=f"{10 + n}", size=2)]
            for n in range(1, size)
        }
        waiters = {n: waiting(n, done(call(size=size), 11), *made) for n, made in by_rank.items()}
        late, last = {culprit}, (done(call(size=size), 11), done(call(seq=4, group="11", size=2)))
        groups = (world(size), *(ProcessGroup(name, tuple(sorted(pair))) for name, pair in pairs.items()))
    else:
        ring = [(culprit + n) % size for n in range(size)]
        waiters = {
            ring[n]: waiting(ring[n], done(call(size=size), 11), recv(ring[n - 1], size=size)) for n in range(1, size)
        }
        late, groups = {culprit}, (world(size),)
    ranks = [waiters[n] if n in waiters else away(reason, n, last) for n in range(size)]
    code = "SL309" if shape == "init" and REASONS[reason] == "SL301" else REASONS[reason]
    return Hang(
        f"{shape}/{reason}", hang(*ranks, groups=groups, world_size=world_size), tuple(sorted(late)), code, tuple(idle)
    )


def apart(kind: str, size: int, odd: int) -> Hang:
    """Ranks whose programs have come apart, in a world of at least three."""
    loop = (done(call(size=size), 10), done(call(size=size), 11), call(size=size))
    others = [n for n in range(size) if n != odd]
    if kind == "operation":
        ranks = {odd: waiting(odd, *loop[:2], call("all_gather", at=GATHER, size=size))}
        ranks |= {n: waiting(n, *loop) for n in others}
        return Hang(kind, hang(*(ranks[n] for n in range(size))), (odd,), "SL302")
    if kind == "left":
        ranks = {odd: waiting(odd, *loop[:2], call("barrier", at=BARRIER, size=size))}
        ranks |= {n: waiting(n, *loop) for n in others}
        source = (INSIDE_LOOP, BEHIND_LOOP)
        return Hang(kind, hang(*(ranks[n] for n in range(size)), source=source), (odd,), "SL303")
    if kind == "order":
        made = (ProcessGroup("1", tuple(range(size))), ProcessGroup("2", tuple(range(size))))
        first, second = call(seq=5, group="1", size=size), call(seq=5, group="2", size=size, at=GATHER)
        ranks = {n: waiting(n, second if n == odd else first) for n in range(size)}
        return Hang(kind, hang(*(ranks[n] for n in range(size)), groups=(world(size), *made)), (odd,), "SL311")
    ranks = {n: waiting(n, done(call(size=size), 11), recv((n - 1) % size, size=size)) for n in range(size)}
    return Hang(kind, hang(*(ranks[n] for n in range(size))), (), "SL311")


def nobody(kind: str, size: int) -> Hang:
    if kind == "inside":
        return Hang(kind, hang(*(waiting(n, call(size=size)) for n in range(size))), (), "SL310")
    calls = (call(size=size), call("all_gather", at=GATHER, size=size))
    size = size // 2 * 2
    calls = tuple(dataclasses.replace(one, group_size=size) for one in calls)
    return Hang(kind, hang(*(waiting(n, done(call(size=size), 11), calls[n % 2]) for n in range(size))), (), "SL302")


@st.composite
def hangs(draw: st.DrawFn, shapes: tuple[str, ...] = SHAPES + APART + NOBODY) -> Hang:
    """One hang on a node of two to eight ranks."""
    shape = draw(st.sampled_from(shapes))
    if shape in NOBODY:
        return nobody(shape, draw(st.integers(2, 8)))
    if shape in APART:
        size = draw(st.integers(3, 8))
        return apart(shape, size, draw(st.integers(0, size - 1)))
    size = draw(st.integers(2, 8))
    culprit = draw(st.integers(0, size - 1))
    second = None
    if size > 3 and shape not in ("grid", "chain") and draw(st.booleans()):
        second = draw(st.integers(0, size - 1).filter(lambda n: n != culprit))
    return missing(shape, draw(st.sampled_from(list(REASONS))), size, culprit, second)


# ------------------------------------------------------------------------------------- evidence that is lost

GAP = "the rank did not answer"
LOST: dict[str, dict[str, object]] = {
    "stack": {"stack": None, "stacks": (), "earlier": None},
    "recorder": {"recorded": None},
    "kernel": {"kernel": None, "children": (), "state": ""},
    "collectives": {"collectives": (), "phases": (), "beat_age_s": None, "quiet_s": None, "batch": 0, "step": 0},
}
LOST["everything"] = {name: value for lost in LOST.values() for name, value in lost.items()} | {"watched": False}


def without(incident: Case, number: int, kind: str) -> Case:
    """The same hang, where one collector has found nothing of one rank, and said so; with `groups`, of all."""
    if kind == "groups":
        return dataclasses.replace(incident, groups=())
    if kind == "source":
        return dataclasses.replace(incident, source=())
    ranks = tuple(
        dataclasses.replace(facts, missing=(*facts.missing, Gap(kind, GAP)), **LOST[kind])  # type: ignore[arg-type]
        if facts.rank == number
        else facts
        for facts in incident.ranks
    )
    return dataclasses.replace(incident, ranks=ranks)


def pieces(incident: Case) -> list[tuple[int, str]]:
    """Each piece of evidence that a case has: (rank, kind)."""
    found = [(-1, "groups")] if incident.groups else []
    found += [(-1, "source")] if incident.source else []
    for facts in incident.ranks:
        has = {
            "stack": facts.stack,
            "recorder": facts.recorded,
            "kernel": facts.kernel,
            "collectives": facts.collectives,
        }
        found += [(facts.rank, kind) for kind, there in has.items() if there]
        found += [(facts.rank, "everything")]
    return found


def with_more(incident: Hang, count: int, joining: bool) -> Case:
    """The same hang with more ranks: members of every group of the whole world that wait as its members do, or ranks
    that have nothing to do with it."""
    case = incident.case
    size = len(case.ranks)
    example = next((f for f in case.ranks if f.rank not in (*incident.culprits, *incident.idle)), None)
    added, total = [], case.world_size + count
    for n in range(count):
        number = size + n
        if joining and example is not None:
            added.append(_as(example, number))
        else:
            added.append(elsewhere(number, COMPUTING, STEP, before=()))
    groups = tuple(
        dataclasses.replace(group, ranks=tuple(range(total)))
        if joining and len(group.ranks) == case.world_size
        else group
        for group in case.groups
    )
    return dataclasses.replace(case, ranks=(*case.ranks, *added), world_size=total, groups=groups)


def _as(example: RankFacts, number: int) -> RankFacts:
    """Another rank that does as this one does."""
    pid = 4100 + number

    def renamed(stack):  # type: ignore[no-untyped-def]
        return None if stack is None else dataclasses.replace(stack, thread=pid)

    calls = tuple(dataclasses.replace(one, thread=pid) for one in example.collectives)
    return dataclasses.replace(
        example,
        rank=number,
        local_rank=number,
        pid=pid,
        collectives=calls,
        stack=renamed(example.stack),
        stacks=tuple(map(renamed, example.stacks)),
        recorded=as_recorded(calls)
        if example.recorded is not None and calls and not calls[-1].done
        else example.recorded,
    )

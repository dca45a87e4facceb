"""Golden cases of one rank that does not come, where a detail says what it waits for, or what ends the wait for it."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from golden_hangs import among
from hang_scenes import (
    ASLEEP,
    COMPUTING,
    LOCKED,
    as_recorded,
    call,
    done,
    elsewhere,
    hang,
    library,
    stack,
    waiting,
    world,
)
from scenes import DATA, LOOP, STEP, TORCH, TRAIN

from safelaunch.model import Case, Child, Kernel, Location, ProcessGroup, RankFacts, SourceLine, WayOut

DECODES, SLEEPS = Location(DATA, 13, "decode"), Location(DATA, 15, "decode")
MAKES = Location(TRAIN, 40, "main")
REPORTS = Location(TRAIN, 26, "run")
HELPS, REDUCES = Location(TRAIN, 31, "gather"), Location(TRAIN, 95, "report")
FOR_THREADS = library("threading.py", 327, "wait")


def holds_gil(*others: Location) -> RankFacts:
    """A rank whose main thread waits for a pool of threads, of which these are at work."""
    facts = elsewhere(2, LOCKED, FOR_THREADS, STEP, beat_age_s=7.9)
    pool = (stack(facts.pid, at, thread=facts.pid + 10 + n, name="") for n, at in enumerate(others))
    return dataclasses.replace(facts, stacks=(*facts.stacks, *pool))


def in_groups(number: int, *uses: tuple[str, int], size: int = 3) -> RankFacts:
    """A rank that has made a group after the other, and then enqueued a call in each, on its GPU."""
    made = (done(call("new_group", 1, group=f"new_group #{n}", size=size, at=MAKES)) for n in range(1, len(uses) + 1))
    first, *others = (
        dataclasses.replace(call("all_reduce", 1, group=group, size=size), numel=numel, state="enqueued")
        for group, numel in uses
    )
    behind = (dataclasses.replace(one, done=True, issued=True) for one in others)
    return waiting(number, *made, *behind, first)


def of_threads(number: int, *order: Location, size: int = 3) -> RankFacts:
    """A rank that has enqueued these calls on its GPU, each by a thread of its own, and waits for it."""
    facts = waiting(number, done(call("all_reduce", 11, size=size)), call(seq=12, size=size))
    by = {LOOP: ("all_reduce", facts.pid), REPORTS: ("broadcast", facts.pid + 10)}
    calls = []
    for n, at in enumerate(order):
        op, thread = by[at]
        one = call(op, 12 + n, at=at, size=size, thread=thread, state="enqueued")
        calls.append(one if n == 0 else dataclasses.replace(one, done=True, issued=True))
    own = stack(facts.pid, Location(f"{TORCH}/cuda/__init__.py", 985, "synchronize"), Location(TRAIN, 64, "main"))
    other = stack(facts.pid + 10, library("queue.py", 171, "get"), Location(TRAIN, 23, "run"), name="reports")
    made = (facts.collectives[0], *calls)
    return dataclasses.replace(facts, collectives=made, recorded=as_recorded(made), stack=own, stacks=(own, other))


def gone_on(number: int, at: Location, op: str) -> RankFacts:
    """A rank that has enqueued a call of a helper function, and whose host waits behind its loop for the GPU."""
    facts = waiting(number, done(call(op, 11, at=at, size=3)), call(op, 12, at=at, size=3, state="enqueued"))
    synchronize = Location(f"{TORCH}/cuda/__init__.py", 985, "synchronize")
    host = (
        synchronize,
        Location(TRAIN, 96, "Run.report"),
        Location(TRAIN, 92, "Run.epoch"),
        Location(TRAIN, 99, "main"),
    )
    own = stack(facts.pid, *host)
    return dataclasses.replace(facts, recorded=as_recorded(facts.collectives), stack=own, stacks=(own,))


def cases() -> dict[str, tuple[Case, Expected]]:
    """By name."""
    baton = Location(f"{TORCH}/utils/file_baton.py", 50, "wait")
    path = "/home/ada/.cache/ops/lock"
    builds = dataclasses.replace(elsewhere(2, ASLEEP, baton, STEP), looks_at=(("", path),))
    in_pool = (SourceLine(DATA, 13, "fast.acquire(cost)"), SourceLine(DATA, 15, "time.sleep(0.01)"))
    at_work = among(elsewhere(2, COMPUTING, Location(TRAIN, 25, "build"), STEP))
    soon = tuple(
        dataclasses.replace(
            facts,
            recorded=tuple(
                one if one.done else dataclasses.replace(one, timeout_s=8.0) for one in facts.recorded or ()
            ),
        )
        for facts in at_work.ranks
    )
    skips = WayOut(86, "continue", 85, "", "not valid.any()")
    helped = (
        SourceLine(TRAIN, 31, "dist.all_gather(out, f)", caller=(88, "epoch")),
        SourceLine(TRAIN, 88, "loss = contrast(f, gather(f))", ((85, 90),), exits=(skips,)),
        SourceLine(TRAIN, 95, "dist.all_reduce(seen)", caller=(92, "epoch")),
        SourceLine(TRAIN, 92, "return self.report(seen)"),
    )
    puts = library("multiprocessing/queues.py", 89, "put")
    gone = Child(4200, "python", Kernel("Z"), status=256)
    groups = (world(3), *(ProcessGroup(name, (0, 1, 2)) for name in ("1", "2")))
    exchanged = [in_groups(0, ("1", 500), ("2", 90)), *(in_groups(n, ("2", 500), ("1", 90)) for n in (1, 2))]
    other_sizes = [in_groups(0, ("1", 500), ("2", 90)), *(in_groups(n, ("2", 500), ("1", 80)) for n in (1, 2))]
    said = "torch ends that wait after 8 s, the `timeout` of its group"
    return {
        "hang-lock-file-of-a-build": (
            among(builds),
            Expected(
                "SL301",
                (2,),
                place(STEP),
                conclusive=False,
                mentions=(f"the lock file is {path}", "remove it"),
            ),
        ),
        "hang-gil-held-by-a-thread-of-a-pool": (
            dataclasses.replace(among(holds_gil(SLEEPS, DECODES, SLEEPS)), source=in_pool),
            Expected("SL305", (2,), (DATA, 13), conclusive=False, mentions=("GIL",)),
        ),
        # Two of them may have it: the line of the main thread is as good as theirs.
        "hang-gil-held-by-one-of-two-threads": (
            dataclasses.replace(among(holds_gil(DECODES, DECODES)), source=in_pool),
            Expected("SL305", (2,), place(STEP), conclusive=False, mentions=("GIL",)),
        ),
        "hang-groups-made-in-another-order": (
            hang(*exchanged, groups=groups),
            Expected(
                "SL410",
                (),
                place(MAKES),
                mentions=(
                    "ranks made their process groups in different orders: 90 x float32 of all_reduce",
                    "goes to group 2 on rank 0, to group 1 on ranks 1 and 2",
                    "make the groups in one order on all ranks: not by rank",
                ),
            ),
        ),
        # What they bring is not the same: it may be that which is wrong.
        "hang-groups-with-other-sizes": (
            hang(*other_sizes, groups=groups),
            Expected("SL410", (0,), place(LOOP), mentions=("500 x float32",)),
        ),
        # Their hosts have gone on: no thread is inside a call.
        "hang-two-threads-that-enqueue-on-one-gpu": (
            hang(of_threads(0, REPORTS, LOOP), of_threads(1, REPORTS, LOOP), of_threads(2, LOOP)),
            Expected(
                "SL302",
                (),
                place(LOOP),
                conclusive=False,
                mentions=("two threads of ranks 0 and 1 use one process group at once (train.py:26 and train.py:61)",),
            ),
        ),
        "hang-full-queue-of-a-process-that-has-ended": (
            among(dataclasses.replace(elsewhere(2, LOCKED, puts, STEP), children=(gone,))),
            Expected(
                "SL301",
                (2,),
                place(STEP),
                conclusive=False,
                mentions=(
                    "waits for room in a queue, which is full",
                    "its process python (pid 4200) has exited with 1",
                ),
            ),
        ),
        # No stack shows the loop any more: its calls are in a function that one line alone calls.
        "hang-left-a-loop-whose-calls-are-in-a-helper": (
            hang(
                *(gone_on(n, HELPS, "all_gather") for n in range(2)), gone_on(2, REDUCES, "all_reduce"), source=helped
            ),
            Expected(
                "SL303",
                (2,),
                place(REDUCES),
                conclusive=True,
                mentions=(
                    "rank 2 left the loop and entered all_reduce #12 (train.py:95)",
                    "a pass skips that call by `continue` where `not valid.any()` holds",
                ),
            ),
        ),
        "hang-work-that-is-longer-than-the-time-out": (
            dataclasses.replace(at_work, ranks=soon),
            Expected("SL301", (2,), (TRAIN, 25), conclusive=False, mentions=(said,)),
        ),
    }

"""Small words to build hangs with: who waits in which call, who does what instead, and what a look sees of it.

Progress ends at `T`, the look is at `NOW`. Every rank has its full evidence; a test takes away what it is about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from scenes import C10D, DATA, DISTRIBUTED, HOST, LOOP, STEP, TORCH, TRAIN, T

from safelaunch.model import (
    Case,
    Child,
    Collective,
    Condition,
    Gap,
    Incident,
    Kernel,
    Location,
    Phase,
    Process,
    ProcessGroup,
    RankFacts,
    SourceLine,
    Stack,
)

NOW = T + 8.0

PYTHON = "/usr/lib/python3.11"
BARRIER = Location(TRAIN, 70, "main")
GATHER = Location(TRAIN, 63, "main")
FETCH = Location(TRAIN, 58, "main")  # `for batch in loader:`
ITEM = Location(DATA, 31, "__getitem__")
SAVE = Location(TRAIN, 120, "save_checkpoint")
SETUP = Location(TRAIN, 15, "prepare_data")
INIT = Location(TRAIN, 40, "main")
SEND = Location("/home/ada/project/pipeline.py", 33, "pass_on")

# The loop of the user's program goes from line 58 to line 66.
INSIDE_LOOP = SourceLine(TRAIN, LOOP.line, "dist.all_reduce(loss)", loops=((58, 66),))
BEHIND_LOOP = SourceLine(TRAIN, BARRIER.line, "dist.barrier()")

ASLEEP = Kernel("S", "hrtimer_nanosleep", "clock_nanosleep")
POLLING = Kernel("S", "do_sys_poll", "poll")
LOCKED = Kernel("S", "futex_wait_queue", "futex")
FOR_CHILD = Kernel("S", "do_wait", "wait4")
READING = Kernel("S", "folio_wait_bit_common", "read", "/data/shard-17")
COMPUTING = Kernel("R", cpu_s=1.9, io_bytes=0, since_s=2.0)
IN_D = Kernel("D", "rpc_wait_bit_killable", "openat", "/mnt/nfs/ckpt/step-11.pt")
STOPPED = Kernel("T", "do_signal_stop")

MESSAGES = ("send", "recv")


# ------------------------------------------------------------------------------------------------ calls


def world(size: int = 4) -> ProcessGroup:
    return ProcessGroup("0", tuple(range(size)))


def call(
    op: str = "all_reduce",
    seq: int = 12,
    *,
    group: str = "0",
    size: int = 4,
    at: Location | None = LOOP,
    t: float = T + 0.02,
    **more: object,
) -> Collective:
    """A call that has not ended."""
    shape = (1000, "float32") if op not in ("barrier", "init_process_group", "destroy_process_group") else (-1, "")
    return Collective(op, group, seq, *shape, False, t, group_size=size, location=at, **more)  # type: ignore[arg-type]


def done(one: Collective, seq: int | None = None) -> Collective:
    """The same call, ended; with another number, as it was made some steps before."""
    steps = 0 if seq is None else one.seq - seq
    return dataclasses.replace(one, done=True, seq=one.seq - steps, t=one.t - 1.1 * steps)


def recv(peer: int, *, size: int = 4) -> Collective:
    return call("recv", 3, at=SEND, peer=peer, size=size)


def send(peer: int, *, size: int = 4) -> Collective:
    return call("send", 3, at=SEND, peer=peer, size=size)


def as_recorded(calls: Iterable[Collective]) -> tuple[Collective, ...]:
    """What torch's Flight Recorder has of these calls: no lines, no sizes of groups, no roots, no messages, no init."""
    return tuple(
        dataclasses.replace(
            one, location=None, group_size=0, thread=0, peer=None, issued=False, done=one.done and not one.issued
        )
        for one in calls
        if one.op not in (*MESSAGES, "destroy_process_group") and one.group.isdigit()
    )


# ------------------------------------------------------------------------------------------------ stacks


def stack(pid: int, *frames: Location, thread: int | None = None, name: str = "MainThread") -> Stack:
    return Stack(frames, "py-spy", "", thread or pid, name)


def in_torch(function: str, line: int = 2936) -> Location:
    return Location(C10D, line, function)


def library(file: str, line: int, function: str) -> Location:
    return Location(f"{PYTHON}/{file}", line, function)


LOADER_WAIT = (
    library("selectors.py", 415, "select"),
    library("multiprocessing/connection.py", 947, "wait"),
    library("multiprocessing/queues.py", 113, "get"),
    Location(f"{TORCH}/utils/data/dataloader.py", 1310, "_try_get_data"),
    Location(f"{TORCH}/utils/data/dataloader.py", 740, "__next__"),
    FETCH,
)
LOADER_HERE = (
    ITEM,
    Location(f"{TORCH}/utils/data/_utils/fetch.py", 54, "fetch"),
    Location(f"{TORCH}/utils/data/dataloader.py", 740, "__next__"),
    FETCH,
)
WORKER = Location(f"{TORCH}/utils/data/_utils/worker.py", 349, "_worker_loop")
# A loader worker is forked: what the rank did at the fork lies below on its stack.
FORKED = (library("multiprocessing/process.py", 108, "run"), library("multiprocessing/popen_fork.py", 71, "_launch"))
IDLE = (library("selectors.py", 415, "select"), library("multiprocessing/queues.py", 113, "get"), WORKER)
BUSY = (ITEM, Location(f"{TORCH}/utils/data/_utils/fetch.py", 54, "fetch"), WORKER)


def loader_worker(pid: int, *frames: Location, kernel: Kernel = POLLING) -> Child:
    seen = Stack((*frames, *FORKED, FETCH), "py-spy", "", pid, "MainThread")
    return Child(pid, "pt_data_worker", kernel, seen)


# ------------------------------------------------------------------------------------------------ ranks


def waiting(number: int, *calls: Collective) -> RankFacts:
    """A rank that is inside the last of these calls, as it should be; a call before it went well, unless given."""
    pid = 4100 + number
    last = calls[-1]
    made = calls if len(calls) > 1 or last.seq < 2 or last.op in MESSAGES else (done(last, last.seq - 1), last)
    made = tuple(dataclasses.replace(one, thread=one.thread or pid) for one in made)
    frames = (
        DISTRIBUTED if last.op == "all_reduce" else in_torch(last.op),
        *((last.location,) if last.location else ()),
    )
    own = stack(pid, *frames, thread=made[-1].thread)
    return RankFacts(
        rank=number,
        local_rank=number,
        pid=pid,
        stack=own,
        stacks=(own,),
        collectives=made,
        state="S",
        recorded=as_recorded(made) if last.group != "init" else None,
        kernel=LOCKED,
        beat_age_s=0.1,
        quiet_s=NOW - T,
        batch=12,
        step=11,
    )


def python(number: int) -> Process:
    """The process of a rank, as the kernel calls it."""
    return Process(4100 + number, "python")


def elsewhere(
    number: int,
    kernel: Kernel,
    *frames: Location,
    before: Iterable[Collective] | None = None,
    phase: str = "",
    since: float = T + 0.01,
    children: tuple[Child, ...] = (),
    beat_age_s: float = 0.1,
) -> RankFacts:
    """A rank that has done its calls up to #11, or those given, and now does something else."""
    pid = 4100 + number
    calls = (done(call(), 11),) if before is None else tuple(before)
    calls = tuple(dataclasses.replace(one, thread=one.thread or pid) for one in calls)
    own = stack(pid, *(frames or (STEP,)))
    return RankFacts(
        rank=number,
        local_rank=number,
        pid=pid,
        stack=own,
        stacks=(own,),
        collectives=calls,
        state=kernel.state,
        recorded=as_recorded(calls) if calls and beat_age_s < 1 else None,
        kernel=kernel,
        children=children,
        phases=(Phase(phase, since, thread=pid),) if phase else (),
        beat_age_s=beat_age_s,
        quiet_s=NOW - T,
        batch=12,
        step=11,
        missing=()
        if beat_age_s < 1
        else (Gap("recorder", f"the interpreter does not run (no beat for {beat_age_s} s)"),),
    )


def in_cpp(facts: RankFacts, *frames: Location) -> RankFacts:
    """The same wait, of a collective that C++ has begun: Python's own record does not have it, the recorder has."""
    kept = tuple(one for one in facts.collectives if one.done)
    autograd = Location(f"{TORCH}/autograd/graph.py", 865, "_engine_run_backward")
    own = stack(facts.pid, *(frames or (autograd, Location(f"{TORCH}/_tensor.py", 648, "backward"), STEP)))
    return dataclasses.replace(facts, collectives=kept, stack=own, stacks=(own,))


def condition(line: int, text: str) -> Condition:
    """A condition above a line; `else: rank == 0` where it does not hold there."""
    return Condition(line, text.removeprefix("else: "), holds=not text.startswith("else: "))


def hang(
    *ranks: RankFacts,
    groups: tuple[ProcessGroup, ...] | None = None,
    world_size: int | None = None,
    source: tuple[SourceLine, ...] = (),
) -> Case:
    """The case of a look at `NOW`, on a node that holds the first ranks of the job."""
    size = world_size or len(ranks)
    made = groups if groups is not None else (world(size),)
    return Case(Incident("hang", 0, (), T), HOST, size, tuple(ranks), 0, made, source, NOW)

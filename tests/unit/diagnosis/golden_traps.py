"""Golden cases of hangs that look like something else."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    COMPUTING,
    GATHER,
    LOCKED,
    SAVE,
    SEND,
    as_recorded,
    call,
    done,
    elsewhere,
    hang,
    in_torch,
    library,
    recv,
    send,
    stack,
    waiting,
    world,
)
from scenes import LOOP, STEP, raised

from safelaunch.model import Case, GroupProgress, Location, ProcessGroup, RankFacts

Golden = dict[str, tuple[Case, Expected]]

ITEM_OF_LOSS = Location(LOOP.file, 65, "main")  # `loss.item()`: where a rank with a GPU waits


def enqueued(number: int, first: int, last: int) -> RankFacts:
    """A rank whose collectives return at once (NCCL): it has run ahead to `last`, and its GPU waits in `first`."""
    facts = elsewhere(number, COMPUTING, ITEM_OF_LOSS, before=[done(call(seq=seq)) for seq in range(10, last + 1)])
    recorded = tuple(dataclasses.replace(one, done=one.seq < first) for one in as_recorded(facts.collectives))
    return dataclasses.replace(facts, recorded=recorded)


def _not_a_circle() -> Golden:
    """Ranks 1's main thread and its helper wait for different things; rank 2 is the one that does not come."""
    background, pair = ProcessGroup("7", (0, 1, 2)), ProcessGroup("2", (1, 2))
    helper = dataclasses.replace(call("all_gather", 1, group="7", size=3, at=SAVE), thread=9101)
    both = waiting(1, done(call(seq=12, size=3)), call(seq=4, group="2", size=2))
    both = dataclasses.replace(
        both,
        collectives=(*both.collectives, helper),
        recorded=as_recorded((*both.collectives, helper)),
        stacks=(*both.stacks, stack(4101, in_torch("all_gather"), SAVE, thread=9101, name="Thread-1")),
    )
    late = elsewhere(2, ASLEEP, STEP, before=(done(call(size=3)), done(call(seq=3, group="2", size=2))))
    ahead = waiting(0, call(seq=13, size=3))
    return {
        "hang-helper-is-no-circle": (
            hang(ahead, both, late, groups=(world(3), background, pair)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("sleeps",)),
        ),
    }


def _circles() -> Golden:
    in_world = call(size=3)
    steps = [done(call(seq=seq)) for seq in range(2, 17)]  # a record holds 16 calls: older ones are not in it
    making = call("new_group", 1, group="new_group #1", size=3, at=GATHER)
    return {
        # It believed to need no group. What its full record does not show it may have done, but not without them.
        "hang-new-group-that-one-left-out": (
            hang(
                *(waiting(n, *steps, making) for n in (0, 1)),
                *(waiting(n, *steps, call(seq=17)) for n in (2, 3)),
                groups=(world(), ProcessGroup("new_group #1", (0, 1, 3))),
            ),
            Expected("SL311", (3,), place(LOOP), confidence="medium", conclusive=True, mentions=("new_group",)),
        ),
        "hang-message-against-collective": (
            hang(waiting(0, send(1, size=2)), waiting(1, call(size=2))),
            Expected("SL311", (), place(SEND), conclusive=True, mentions=("all_reduce #12", "send to rank 1")),
        ),
        "hang-circle-below-a-collective": (
            hang(waiting(0, recv(1)), waiting(1, recv(0)), waiting(2, call()), waiting(3, call())),
            Expected("SL311", (), place(SEND), conclusive=True, mentions=("neither of them sends",)),
        ),
        "hang-message-of-one-against-all": (
            hang(waiting(0, recv(1, size=3)), waiting(1, in_world), waiting(2, in_world)),
            Expected("SL311", (0,), place(SEND), confidence="medium", conclusive=True),
        ),
    }


def on_gpu(number: int, first: int, last: int) -> RankFacts:
    """The same, with the words of NCCL's recorder for its device: all before `first` has completed."""
    facts = enqueued(number, first, last)
    recorded = tuple(
        dataclasses.replace(one, state="completed" if one.done else "enqueued") for one in facts.recorded or ()
    )
    return dataclasses.replace(facts, recorded=recorded, progress=(GroupProgress("0", "nccl", last, first - 1),))


def _misleading() -> Golden:
    anybody = dataclasses.replace(recv(0), peer=None)
    small = dataclasses.replace(call(), numel=10)
    shutdown = elsewhere(2, LOCKED, library("threading.py", 1622, "_shutdown"))
    failed = raised(shutdown, "ValueError", "loss is nan", ended_after=None)
    return {
        # A non-daemon thread keeps it alive after its exception: the exception is the reason.
        "hang-exception-that-does-not-end": (
            hang(
                waiting(0, call()), waiting(1, call()), dataclasses.replace(failed, shut_down=None), waiting(3, call())
            ),
            Expected("SL401", (2,), place(STEP), mentions=("loss is nan",)),
        ),
        # NCCL hangs where gloo raises.
        "hang-size-mismatch": (
            hang(waiting(0, call()), waiting(1, call()), waiting(2, small), waiting(3, call())),
            Expected("SL410", (2,), place(LOOP), mentions=("10 x float32",)),
        ),
        # Uneven shapes are a right of these.
        "hang-uneven-all-to-all": (
            hang(
                *(
                    waiting(n, dataclasses.replace(call("all_to_all_single", at=GATHER), numel=100 * n))
                    for n in range(4)
                )
            ),
            Expected("SL310", location=place(GATHER), confidence="medium", conclusive=False),
        ),
        # Who should have sent is not known, and so nobody can say that none is late.
        "hang-receive-from-anybody": (
            hang(waiting(0, anybody), *(elsewhere(n, ASLEEP, STEP) for n in (1, 2, 3))),
            Expected("SL399", confidence="low", conclusive=False, mentions=("recv",)),
        ),
        # The calls have returned, and the GPUs wait: of ranks 0, 1 and 3 in #12, of which rank 2 knows nothing.
        "hang-of-gpus-that-ran-ahead": (
            hang(enqueued(0, 12, 14), enqueued(1, 12, 12), elsewhere(2, ASLEEP, STEP), enqueued(3, 12, 17)),
            Expected("SL301", (2,), place(STEP), conclusive=False, mentions=("3 peers wait for it in all_reduce #12",)),
        ),
        # What all others have completed had its data: the GPU of rank 1 ends nothing, and they wait for its next part.
        "hang-of-a-gpu-that-ends-nothing": (
            hang(*(on_gpu(n, 12 if n == 1 else 14, 15) for n in range(4))),
            Expected(
                "SL318",
                (1,),
                place(LOOP),
                confidence="medium",
                conclusive=False,
                mentions=("the GPU of rank 1 has not completed all_reduce #12", "ranks 0, 2 and 3 have"),
            ),
        ),
        "hang-of-all-gpus": (
            hang(*(enqueued(n, 12, 12 + n) for n in range(4))),
            Expected("SL310", confidence="medium", conclusive=False, mentions=("ranks 0-3", f"{LOOP.file}:65")),
        ),
    }


def cases() -> Golden:
    """All of them by name."""
    return {**_not_a_circle(), **_circles(), **_misleading()}

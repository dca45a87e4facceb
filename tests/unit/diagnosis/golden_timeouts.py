"""Golden cases of collectives that reached their own timeout: who gave up is the victim."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from hang_scenes import (
    ASLEEP,
    BARRIER,
    COMPUTING,
    LOCKED,
    SAVE,
    SETUP,
    STOPPED,
    call,
    elsewhere,
    in_cpp,
    recv,
    waiting,
    world,
)
from scenes import GLOO_CLOSED, LOOP, STEP, T, case, exited, lost_peer, raised

from safelaunch.model import Case, Collective, Gap, ProcessGroup, RankFacts

BUFFER = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc"
GLOO_TIMEOUT = f"[{BUFFER}:78] Timed out waiting 5000ms for recv operation to complete"
NCCL_TIMEOUT = (
    "Work WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=5000) timed out in blocking "
    "wait."
)
GAVE_UP = T + 5.05  # five seconds after `call()`


def seen(facts: RankFacts) -> RankFacts:
    """A rank as it is looked at when another one has ended: nobody asks its Flight Recorder."""
    return dataclasses.replace(facts, recorded=None)


def unseen(facts: RankFacts) -> RankFacts:
    """The same rank, whose stack could not be had in time."""
    gap = Gap("stack", "py-spy did not answer in time")
    return dataclasses.replace(seen(facts), stack=None, stacks=(), missing=(gap,))


def gave_up(number: int, *calls: Collective, t: float = GAVE_UP, message: str = GLOO_TIMEOUT) -> RankFacts:
    """A rank whose last call ended with an exception, of which it died."""
    inside = waiting(number, *(calls or (call(size=2),)))
    made = (*inside.collectives[:-1], dataclasses.replace(inside.collectives[-1], raised=True))
    inside = dataclasses.replace(inside, collectives=made, stack=None, stacks=(), kernel=None, recorded=None)
    return lost_peer(inside, t=t, message=message)


def ended(*ranks: RankFacts, groups: tuple[ProcessGroup, ...] = (), world_size: int | None = None) -> Case:
    """The case of an exit, in which the groups are known."""
    found = case(*ranks, world_size=world_size)
    return dataclasses.replace(found, groups=groups or (world(world_size or len(ranks)),))


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    four = call(size=4)
    pair, other = call(group="1", size=2), call("barrier", 7, group="2", size=2, at=BARRIER)
    came = seen(waiting(1, call(t=GAVE_UP + 0.6, size=2)))
    peers = tuple(gave_up(n, four, t=GAVE_UP + n / 100) for n in (0, 1))
    return {
        "collective-timeout": (
            ended(gave_up(0), seen(elsewhere(1, ASLEEP, STEP))),
            Expected(
                "SL414",
                (1,),
                place(STEP),
                (0,),
                mentions=("rank 0's all_reduce #12 timed out after 5 s: rank 1 had not entered it", "sleeps in"),
            ),
        ),
        # On a busy machine py-spy is late; who sleeps by a clock is in no call of gloo's all the same.
        "collective-timeout-of-one-whose-stack-is-late": (
            ended(gave_up(0), unseen(elsewhere(1, ASLEEP, STEP))),
            Expected("SL414", (1,), None, (0,), confidence="medium", mentions=("rank 1 had not entered it",)),
        ),
        "collective-timeout-of-one-whose-stack-is-late-at-a-lock": (
            ended(gave_up(0), unseen(elsewhere(1, LOCKED, STEP))),
            Expected("SL414", (), place(LOOP), (0,), confidence="low", mentions=("does not say for whom",)),
        ),
        "collective-timeout-of-nccl": (
            ended(gave_up(0, message=NCCL_TIMEOUT), seen(elsewhere(1, COMPUTING, SETUP))),
            Expected("SL414", (1,), place(SETUP), (0,), mentions=("timed out after 5 s", "computes")),
        ),
        # The others notice that the first one has gone, and are no more to blame than it is.
        "collective-timeout-of-a-crowd": (
            ended(
                *peers,
                gave_up(2, four, t=GAVE_UP - 0.02, message=GLOO_CLOSED),
                seen(elsewhere(3, ASLEEP, SAVE, phase="checkpoint")),
            ),
            Expected("SL414", (3,), place(SAVE), (0, 1, 2), mentions=("rank 3 had not entered it", "checkpoint")),
        ),
        "collective-timeout-through-another": (
            ended(
                gave_up(0, pair),
                seen(waiting(1, other)),
                seen(elsewhere(2, ASLEEP, STEP)),
                groups=(world(3), ProcessGroup("1", (0, 1)), ProcessGroup("2", (1, 2))),
            ),
            Expected("SL414", (2,), place(STEP), (0,), mentions=("it waited, through rank 1, for rank 2",)),
        ),
        "collective-timeout-too-late": (
            ended(gave_up(0), came),
            Expected("SL414", (1,), place(LOOP), (0,), mentions=("rank 1 came 0.6 s too late",)),
        ),
        "collective-timeout-stopped": (
            ended(gave_up(0), seen(elsewhere(1, STOPPED, STEP))),
            Expected("SL414", (1,), place(STEP), (0,), mentions=("is stopped",)),
        ),
        "collective-timeout-of-a-message": (
            ended(gave_up(0, recv(1, size=2)), seen(elsewhere(1, ASLEEP, STEP))),
            Expected("SL414", (1,), place(STEP), (0,), mentions=("recv from rank 1 timed out", "had not sent it")),
        ),
        # All were there: what carries the data is left, and no rank is named.
        "collective-timeout-and-nobody-late": (
            ended(gave_up(0), seen(waiting(1, call(size=2)))),
            Expected("SL414", (), place(LOOP), (0,), "medium", mentions=("no rank of this node was late", "network")),
        ),
        "collective-timeout-for-another-node": (
            ended(gave_up(0, four), seen(waiting(1, four)), world_size=4),
            Expected(
                "SL414", (), place(LOOP), (0,), "medium", mentions=("verdicts of the other nodes", "ranks 2 and 3")
            ),
        ),
        # DDP may have made that call for rank 1: its own record does not tell.
        "collective-timeout-in-backward": (
            ended(gave_up(0), seen(in_cpp(waiting(1, call(size=2))))),
            Expected("SL414", (), place(LOOP), (0,), "low", mentions=("does not say for whom it waited",)),
        ),
        # Who never comes because it has crashed is the matter of that crash.
        "collective-timeout-after-a-crash": (
            ended(gave_up(0), exited(raised(elsewhere(1, ASLEEP), "KeyError", "'label'", t=T + 1.0), 1)),
            Expected("SL401", (1,), place(STEP), (0,)),
        ),
    }

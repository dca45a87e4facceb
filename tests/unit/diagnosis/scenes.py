"""Small words to build cases with: who raised, who was killed, who waited, and when.

Times are CLOCK_MONOTONIC; the trouble of every scene begins at `T`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from safelaunch.model import (
    Case,
    Collective,
    Exit,
    ExitCall,
    Incident,
    Location,
    ProcessGroup,
    PyError,
    RankFacts,
    Stack,
)

T = 52_417.25
HOST = "node-a"

TRAIN = "/home/ada/project/train.py"
MODEL = "/home/ada/project/model.py"
DATA = "/home/ada/project/data.py"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"

STEP = Location(TRAIN, 88, "train_step")
LOOP = Location(TRAIN, 61, "main")
DISTRIBUTED = Location(C10D, 2936, "all_reduce")

# As torch 2.13 says it.
GLOO = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"
GLOO_CLOSED = (
    f"[{GLOO}:553] Connection closed by peer [10.0.0.7]:22965. This is typically caused by a remote worker crashing."
)
GLOO_RESET = f"[{GLOO}:537] Read error [10.0.0.7]:48352: Connection reset by peer. This is typically caused by a hang."
GLOO_SIZE = (
    f"[enforce fail at {GLOO}:456] op.preamble.length <= op.nbytes. 4000 vs 40. Received data size doesn't match "
    "expected size. Is there a distributed collective mismatch in your code?"
)
NCCL_REMOTE = "NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error"
STORE_GONE = "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
STORE_TIMEOUT = "The client socket has timed out after 60000ms while trying to connect to (10.0.0.7, 29500)."


# ------------------------------------------------------------------------------------------- one collective


def all_reduce(
    seq: int = 12, *, numel: int = 1000, done: bool = False, t: float = T - 0.2, op: str = "all_reduce", size: int = 4
) -> Collective:
    """A call of a collective in the group of the whole world."""
    return Collective(op, "0", seq, numel, "float32", done, t, group_size=size, location=LOOP)


def barrier(seq: int = 12, *, t: float = T - 0.2, size: int = 4) -> Collective:
    return Collective("barrier", "0", seq, -1, "", False, t, group_size=size, location=Location(TRAIN, 70, "main"))


def destroyed(seq: int = 12, *, t: float = T, size: int = 4) -> Collective:
    line = Location(TRAIN, 97, "main")
    return Collective("destroy_process_group", "0", seq, -1, "", True, t, group_size=size, location=line)


# ------------------------------------------------------------------------------------------------ one rank


def rank(number: int, *, inside: Iterable[Collective] | None = None) -> RankFacts:
    """A healthy rank: alive, in the all_reduce that the scene is about."""
    return RankFacts(
        rank=number,
        local_rank=number,
        pid=4100 + number,
        collectives=(all_reduce(11, done=True, t=T - 1.2), all_reduce()) if inside is None else tuple(inside),
        state="S",
    )


def exited(facts: RankFacts, code: int, t: float = T + 0.1) -> RankFacts:
    """The rank has ended with this status."""
    return dataclasses.replace(facts, exit=Exit(code, t), state="")


def shutting_down(facts: RankFacts, t: float = T) -> RankFacts:
    """The rank's interpreter has begun to shut down."""
    return dataclasses.replace(facts, shut_down=t)


def called_exit(facts: RankFacts, code: str, t: float = T, line: Location = STEP) -> RankFacts:
    """The rank called `sys.exit` or `os._exit`, and nothing caught it."""
    return dataclasses.replace(facts, exit_call=ExitCall(line, code), shut_down=t)


def raised(
    facts: RankFacts,
    kind: str,
    message: str,
    *,
    t: float = T,
    at: Location = STEP,
    chain: tuple[str, ...] = (),
    ended_after: float | None = 0.3,
) -> RankFacts:
    """The rank raised an exception and, after `ended_after` seconds (None: not yet), exited with 1."""
    text = (
        f'Traceback (most recent call last):\n  File "{at.file}", line {at.line}, in {at.function}\n{kind}: {message}\n'
    )
    error = PyError(kind, message, text, t, at, chain)
    facts = dataclasses.replace(facts, error=error, shut_down=t + 0.01, raised=True)
    return exited(facts, 1, t + ended_after) if ended_after is not None else facts


def speaker(message: str) -> str:
    """The type of exception that carries such a message."""
    if "NCCL" in message:
        return "torch.distributed.DistBackendError"
    return "RuntimeError" if GLOO in message else "torch.distributed.DistNetworkError"


def lost_peer(facts: RankFacts, *, t: float = T + 0.05, message: str = GLOO_CLOSED, ended: bool = True) -> RankFacts:
    """The rank noticed that a peer was gone."""
    return raised(facts, speaker(message), message, t=t, at=LOOP, ended_after=0.15 if ended else None)


def crashed(facts: RankFacts, signum: int, *frames: Location, t: float = T) -> RankFacts:
    """A fatal signal; faulthandler wrote the frames, innermost first."""
    head = "Fatal Python error: Aborted" if signum == 6 else "Fatal Python error: Segmentation fault"
    lines = [f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in frames]
    text = "\n".join([head, "", "Current thread 0x00007f1b2c3d4e40 (most recent call first):", *lines, ""])
    return exited(dataclasses.replace(facts, fault=Stack(frames, "faulthandler", text)), -signum, t)


def aborted_in_collective(facts: RankFacts, *, t: float = T + 0.1) -> RankFacts:
    """A communication library aborted the rank from inside a collective."""
    return crashed(facts, 6, DISTRIBUTED, LOOP, t=t)


# ------------------------------------------------------------------------------------------------ one case


def case(
    *ranks: RankFacts,
    groups: tuple[ProcessGroup, ...] = (),
    oom_kills: int | None = 0,
    world_size: int | None = None,
    blamed: tuple[int, ...] | None = None,
) -> Case:
    """The case of one node. The incident is the first exit, as the supervisor would have seen it; with `groups` it is
    a hang, whose ranks wait in them."""
    kind: Literal["exit", "hang"] = "hang" if groups else "exit"
    ended = sorted((f for f in ranks if f.exit is not None), key=lambda facts: facts.exit.t if facts.exit else 0.0)
    first = blamed if blamed is not None else tuple(f.rank for f in ended[:1])
    when = ended[0].exit.t if ended and ended[0].exit else T
    return Case(Incident(kind, 0, first, when), HOST, world_size or len(ranks), tuple(ranks), oom_kills, groups)

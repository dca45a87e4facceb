"""Ranks that wait for one another in torch.distributed.rpc, which makes no collective and keeps no record of its calls.

What is known is in the stacks: a thread below `_run_function` (torch/distributed/rpc/internal.py) serves a call of
another rank, and one inside torch/distributed/rpc/api.py waits for an answer. Who asks whom is in neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.verdicts import hang_verdict
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.wording import at, in_brackets, names, verb
from safelaunch.model import Location, RankFacts, Stack, Verdict

RPC = re.compile(r"/torch/distributed/rpc/")
SERVES = re.compile(r"/torch/distributed/rpc/internal\.py:_run_function$")
WAITS = re.compile(r"/threading\.py$")  # `_all_gather` waits for a signal of another thread


@dataclass(frozen=True)
class _Served:
    """A thread that serves a call: of which rank, where it stands, and whether it waits for an answer itself."""

    facts: RankFacts
    stack: Stack

    @property
    def place(self) -> Location | None:
        return user_frame(self.stack)

    @property
    def asks(self) -> bool:
        return _asks(self.stack)


def unanswered(view: View, ranks: Sequence[RankFacts]) -> Verdict | None:
    """The verdict where the main thread of every rank has waited for an answer in two looks; None where one does
    something else. The CPU time of a rank says nothing here: the reactor of TensorPipe's shared memory polls."""
    if not all(_waits(facts) for facts in ranks):
        return None
    served = [_Served(facts, stack) for facts in ranks for stack in facts.stacks if _serves(stack)]
    at_work = [one for one in served if not one.asks]
    if at_work:
        return _not_ended(view, ranks, at_work[0]) if all(map(_sleeps, at_work)) else None
    return _in_a_circle(view, ranks, served) if {one.facts.rank for one in served} == {f.rank for f in ranks} else None


def _waits(facts: RankFacts) -> bool:
    now, before = facts.stack, facts.earlier
    return now is not None and before is not None and now.frames == before.frames and _asks(now)


def _sleeps(served: _Served) -> bool:
    """Whether the thread was seen in a system call, and not at work."""
    kernels = [one.kernel for one in served.facts.threads if one.thread == served.stack.thread]
    return any(kernel.state == "S" for kernel in kernels)


def _asks(stack: Stack) -> bool:
    inner = next((frame for frame in stack.frames if not WAITS.search(frame.file)), None)
    return inner is not None and RPC.search(inner.file) is not None


def _serves(stack: Stack) -> bool:
    return any(SERVES.search(f"{frame.file}:{frame.function}") for frame in stack.frames)


def _not_ended(view: View, ranks: Sequence[RankFacts], served: _Served) -> Verdict:
    """A call that does not end: all others may wait for its answer."""
    rank = served.facts.rank
    reason = stall_of(served.facts, served.stack.thread, view.now, view.case.source)
    waiting = [facts.rank for facts in ranks]
    return hang_verdict(
        view,
        "SL317",
        f"{names(waiting)} wait for answers of RPCs, and a call that rank {rank} serves does not end: it {reason.what}"
        f"{in_brackets(served.place)}",
        (rank,),
        location=served.place,
        because=(*reason.because, *_where(ranks)),
        remedy="see what the called function waits for at this line",
        confidence="medium",
        waiting=waiting,
    )


def _in_a_circle(view: View, ranks: Sequence[RankFacts], served: Sequence[_Served]) -> Verdict:
    """Each rank serves calls that ask other ranks again, and no thread is left to answer those."""
    who = names(facts.rank for facts in ranks)
    return hang_verdict(
        view,
        "SL317",
        f"{who} wait for answers of RPCs in a circle: the calls that each of them serves ask other ranks again"
        f"{in_brackets(served[0].place)}",
        tuple(facts.rank for facts in ranks),
        location=served[0].place,
        because=(
            *_where(ranks),
            *(f"rank {one.facts.rank} serves a call that waits for an answer itself{at(one.place)}" for one in served),
        ),
        remedy="let a served call ask nobody, or give RPC more threads than calls that are served at a time "
        "(num_worker_threads of its backend's options)",
        confidence="medium",
        waiting=tuple(facts.rank for facts in ranks),
    )


def _where(ranks: Sequence[RankFacts]) -> list[str]:
    """Where the main threads wait, those of one line together."""
    lines: dict[str, list[int]] = {}
    for facts in ranks:
        lines.setdefault(at(user_frame(facts.stack)), []).append(facts.rank)
    return [f"{names(who)} {verb(who, 'waits', 'wait')} for an answer{where}" for where, who in lines.items()]

"""A rank that has left its process group while others still wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch.diagnosis.blame import uneven_data
from safelaunch.diagnosis.blame.ways_out import Ways, ways_out
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import frames_at, is_irreversible
from safelaunch.diagnosis.waitgraph.record import LEAVING
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import names, verb
from safelaunch.model import Verdict


def departed(view: View) -> Verdict | None:
    """Ranks wait in a collective for a rank that has destroyed its process group. It left early, and can enter none any
    more.

    How it was concluded: the last word of the named rank in that group is `destroy_process_group`, or its interpreter
    is shutting down. Its peers are inside a collective of that group.

    What to do: all ranks must make the same number of steps: `drop_last`, DistributedSampler, or DDP's `join()`. Look
    for an early return or break.
    """
    graph = view.graph
    gone = sorted({rank for wait in graph.waits for rank in wait.gone})
    ranks = view.by_rank
    left = [rank for rank in gone if ranks[rank].exit is None and ranks[rank].error is None]
    if not left or any(ranks[rank].exit is not None for rank in gone):
        return None
    blocked = graph.waiting_for(left)
    if not blocked:
        return None
    wait = blocked[0]
    uneven = uneven_data.compared(view.case, left)
    ways = Ways() if uneven else ways_out(frames_at(ranks[wait.rank], wait.call, wait.thread), view.lines)
    last = ranks[left[0]].last_collective
    place = last.location if last is not None and last.op == LEAVING else None
    return hang_verdict(
        view,
        "SL303",
        f"{names(left)} left {verb(left, 'its', 'their')} process group while {_peers(graph.waits)} still waited",
        tuple(left),
        location=place,
        call=wait.call,
        because=(*uneven, *ways.because, *waiters(view)),
        remedy=ways.remedy or "all ranks must make the same number of steps: look for uneven data or an early return",
        confidence="high",
        conclusive=is_irreversible((ranks[wait.rank], wait.call) for wait in blocked),
        waiting={wait.rank for wait in blocked},
    )


def _peers(waits: Iterable[Wait]) -> str:
    return "a peer" if len({wait.rank for wait in waits}) == 1 else "peers"

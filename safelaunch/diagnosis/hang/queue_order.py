"""The order in which ranks have enqueued the calls of several groups, where all have enqueued all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import is_under_way
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait
from safelaunch.diagnosis.wording import label, names
from safelaunch.model import Verdict

Meeting = tuple[str, int]  # group and number
Places = dict[Meeting, int]  # of meetings in the order of a rank's host


def enqueued_in_another_order(view: View) -> Verdict | None:
    """All ranks have enqueued the same calls of two groups in different orders, and no GPU goes on.

    How it was concluded: a GPU does what its host enqueues in that order, unless the program takes care of streams
    itself. A rank whose GPU is in the call of one group waits for a peer whose GPU is in the call of the other. With
    three ranks or more, the one is named whose order differs from that of all others.

    What to do: use the groups in the same order on all ranks.
    """
    graph = view.graph
    first = _in_order(graph)
    places = {rank: {_meeting(wait): at for at, wait in enumerate(waits)} for rank, waits in first.items()}
    if all(_agree(one, other) for one, other in itertools.combinations(_different(places.values()), 2)):
        return None
    for one, other in itertools.combinations(sorted({meeting for own in places.values() for meeting in own}), 2):
        orders: dict[Meeting, list[int]] = {}
        for rank, own in places.items():
            if one in own and other in own:
                orders.setdefault(min(one, other, key=own.__getitem__), []).append(rank)
        if len(orders) == 2:
            return _verdict(view, first, orders)
    return None


def _different(orders: Iterable[Places]) -> list[Places]:
    """Each order once: most ranks have the same."""
    return list({tuple(places): places for places in orders}.values())


def _agree(one: Places, other: Places) -> bool:
    """Whether what two ranks have in common comes in one order on both."""
    there = [other[meeting] for meeting in one if meeting in other]
    return all(before < after for before, after in itertools.pairwise(there))


def _in_order(graph: Graph) -> dict[int, list[Wait]]:
    """The calls under way on each rank's GPU that come first in their groups, in the order of its host."""
    first: dict[int, list[Wait]] = {rank: [] for rank in sorted({wait.rank for wait in graph.waits})}
    for wait in sorted(graph.waits, key=lambda wait: wait.call.t):
        if is_under_way(wait.call) and not wait.call.is_message:
            first[wait.rank].append(wait)
    return first


def _meeting(wait: Wait) -> Meeting:
    return wait.call.group, wait.call.seq


def _verdict(view: View, first: dict[int, list[Wait]], orders: dict[Meeting, list[int]]) -> Verdict:
    (_, few), (_, many) = sorted(orders.items(), key=lambda order: len(order[1]))
    named = tuple(few) if len(few) == 1 and len(many) >= 2 else ()
    mine = next(wait for wait in first[few[0]] if _meeting(wait) in orders)
    theirs = next(wait for wait in first[many[0]] if _meeting(wait) in orders)
    calls = f"{label(mine.call)} of group {mine.call.group} before {label(theirs.call)} of group {theirs.call.group}"
    return hang_verdict(
        view,
        "SL311",
        f"{names(few)} enqueued {calls}, {names(many)} the other way round: now they wait for one another",
        named,
        location=mine.call.location,
        call=mine.call,
        because=waiters(view),
        remedy="use the groups in the same order on all ranks",
        confidence="medium",
        waiting=first,
    )

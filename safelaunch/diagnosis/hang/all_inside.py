"""All who are to come to a call have come, and it does not end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.blame.variants import placed
from safelaunch.diagnosis.sources import dumps
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.wait import Wait, away_of
from safelaunch.diagnosis.wording import SAME_ORDER, is_waiting, label, names, of_group, short, verb
from safelaunch.model import Confidence, Verdict

SHOWN = 3  # lines that a headline has room for


def all_inside(view: View) -> Verdict | None:
    """All ranks are inside the same collective, with the same operation, and it does not end. No rank is to blame.

    Example:
        error[SL310]: ranks 0-3 are inside the same all_reduce #12, and it does not end: no rank is late

    How it was concluded: the records of all members agree on operation and number, so each rank has done its part. What
    is left is what carries the data: network, links, a GPU, or the library. NVML and the kernel log are asked, and say
    which NVLinks and network ports of this node are down, and which GPUs run nothing while others do. Members on other
    nodes that could not be looked at are said to be unknown, with low confidence: one of them may be late.

    What to do: check the interface that the ranks use, the links, Xid messages in the kernel log, and the verdicts of
    the other nodes.

    What it is not: a fault of a GPU that the driver has logged. That is SL428, or SL427 for a kernel. Nor calls of one
    number from two lines: whether these are one call is not known (SL399).
    """
    waits = view.graph.waits
    if any(not wait.partners for wait in waits):
        return None
    # The others wait for these ranks, behind what these are in.
    wait = next((wait for wait in view.graph.heads if not wait.blockers), waits[0])
    inside = _Inside(view, wait, sorted(away_of(waits)))
    if view.from_dumps and not inside.away and not inside.knows_members:
        return None  # there may be ranks that left no dump, and of which nobody speaks
    return hang_verdict(
        view,
        inside.code,
        _headline(inside),
        (),
        location=wait.call.location,
        call=wait.call,
        because=(
            *_not_known(inside),
            *inside.unstarted,
            *waiters(view),
            *(dumps.ground(view.case, waits) if view.from_dumps else ()),
        ),
        remedy=_remedy(inside),
        confidence=inside.confidence,
        waiting={wait.rank for wait in waits},
    )


INIT = "init_process_group"


@dataclass(frozen=True)
class _Inside:
    """Ranks that are all inside: the wait that is shown, and the members of which nothing is known (`away`)."""

    view: View
    wait: Wait
    away: list[int]

    @cached_property
    def unknown(self) -> list[int]:
        """Those of them that belong to this case: no other node has a verdict on them."""
        return [rank for rank in self.away if rank in self.view.by_rank]

    @cached_property
    def meetings(self) -> set[tuple[str, int]]:
        return _meetings(self.view.graph.waits)

    @cached_property
    def differ(self) -> bool:
        """Whether what one rank is inside would not be true of another: each receives from its own neighbour."""
        return len({label(wait.call) for wait in self.view.graph.waits}) > 1

    @cached_property
    def lines(self) -> dict[str, list[int]]:
        """The ranks that are at each line, where those of one call stand at several: it may not be the same call."""
        meetings: dict[tuple[str, int], dict[str, list[int]]] = {}
        for wait in self.view.graph.waits:
            place = placed(self.view.by_rank[wait.rank], wait.call).location
            if place is not None and not wait.call.is_message:
                at_line = meetings.setdefault((wait.call.group, wait.call.seq), {})
                at_line.setdefault(short(place), []).append(wait.rank)
        return next((at_line for at_line in meetings.values() if len(at_line) > 1), {})

    @property
    def code(self) -> str:
        return "SL399" if self.unknown or self.lines else "SL310"

    @property
    def confidence(self) -> Confidence:
        return "low" if self.away or self.unstarted or self.lines else "medium"

    @property
    def knows_members(self) -> bool:
        """Whether the members of each group are told."""
        groups = {group.name for group in self.view.case.groups}
        return all(name in groups for name, _ in self.meetings)

    @cached_property
    def unstarted(self) -> tuple[str, ...]:
        """Said where all have enqueued the call, and not all GPUs are known to have begun it."""
        return () if self.away else dumps.unstarted(self.view.case, self.wait)


def _meetings(waits: Iterable[Wait]) -> set[tuple[str, int]]:
    return {(wait.call.group, wait.call.seq) for wait in waits}


def _headline(inside: _Inside) -> str:
    return _at_lines(inside) if inside.lines and not inside.away else _of_one_call(inside)


def _of_one_call(inside: _Inside) -> str:
    view, call = inside.view, inside.wait.call
    waits = view.graph.waits
    ranks = {wait.rank for wait in waits}
    if view.from_dumps and inside.away:
        where = f"calls such as {label(call)}" if inside.differ else f"{label(call)}{of_group(call)}"
        return f"{is_waiting(ranks)} in {where}, and nothing is known of {names(inside.away)}"
    if inside.away:
        where = f"calls such as {label(call)}" if inside.differ else label(call)
        if view.joined:
            return f"{is_waiting(ranks)} in {where}, and {names(inside.away)} {_not_seen(inside.away)}"
        return f"{is_waiting(ranks)} in {where}, and no rank of this node is late"
    return _of_all(inside)


def _of_all(inside: _Inside) -> str:
    view, call = inside.view, inside.wait.call
    waits = view.graph.waits
    ranks = {wait.rank for wait in waits}
    who = names(ranks)
    if inside.unstarted and len(_meetings(view.graph.heads)) == 1:
        return f"{who} {verb(ranks, 'has', 'have')} enqueued {label(call)}, and no GPU completes it"
    if view.from_dumps and len(inside.meetings) > 1:
        return f"{who} wait in {len(inside.meetings)} collectives or messages, and no rank is missing in any"
    if call.is_message and len(waits) > 1:
        return f"{who} exchange messages, such as {label(call)}, and none completes: no rank is late"
    there = {wait.rank for wait in waits if not wait.blockers} or ranks  # the others wait for these, in other calls
    inside_it = verb(there, "is inside", "are inside the same")
    return f"{names(there)} {inside_it} {label(call)}, and it does not end: no rank is late"


def _at_lines(inside: _Inside) -> str:
    call = inside.wait.call
    where = ", ".join(f"{names(ranks)} at {line}" for line, ranks in list(inside.lines.items())[:SHOWN])
    return f"all ranks wait in {label(call)}, and not at one line: {where}; whether it is the same call is not known"


def _not_known(inside: _Inside) -> tuple[str, ...]:
    """Of which ranks nothing is known, and why."""
    if inside.view.from_dumps:
        lines = dumps.gaps(inside.view.case, inside.away)
    else:
        lines = (f"nothing is known of {names(inside.unknown)}",) if inside.unknown else ()
    elsewhere = {*inside.away} - {*inside.unknown}
    if elsewhere and inside.view.joined:
        where = verb(elsewhere, "it is on another node", "they are on other nodes")
        if inside.wait.call.op == INIT:
            return (*lines, f"{where}, or not started, or not as far as init_process_group in a process here")
        return (*lines, f"{where}, or in a process of this node that is not watched")
    where = verb(elsewhere, "is on another node", "are on other nodes")
    return (*lines, f"{names(elsewhere)} {where}: read the verdict there") if elsewhere else lines


def _not_seen(ranks: Collection[int]) -> str:
    return f"{verb(ranks, 'has', 'have')} not joined on this node"


def _remedy(inside: _Inside) -> str:
    if inside.unknown:
        return f"look at {names(inside.unknown)} first: the log, the stack, a dump; of all others, none is late"
    if inside.lines and not inside.away:
        return f"{SAME_ORDER}: compare these lines, and what each rank has called before"
    if inside.unstarted:
        return "no rank's host is late: look at the GPUs (Xid messages, a kernel without an end), then at the network"
    if inside.away and inside.view.joined:
        where = f"see whether {names(inside.away)} {verb(inside.away, 'was', 'were')} started, and where"
        return f"{where}; other nodes have verdicts of their own"
    if inside.away:
        where = f"read the verdict of the nodes of {names(inside.away)}: somebody may be late there"
        return f"{where}; if nobody is, look at the network"
    return "no rank is late: look at the network, the links and the GPUs"

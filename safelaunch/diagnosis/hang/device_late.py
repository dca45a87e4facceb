"""Ranks whose host has done its part, and whose GPU has not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.sources.dumps import gaps, ground, of_several_moments
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import first_on_device, frames_at, is_under_way
from safelaunch.diagnosis.waitgraph.counters import (
    UNTOLD,
    Table,
    comparable,
    has_completed,
    has_enqueued,
    has_root,
    is_exchange,
    of_nccl,
    untold,
)
from safelaunch.diagnosis.wording import at, is_waiting, label, names, of_group
from safelaunch.model import Case, Collective, Confidence, GroupProgress, RankFacts, StreamProgress, Verdict


@dataclass(frozen=True)
class LateGpu:
    """A GPU that does not end a call.

    Args:
        rank: whose.
        call: the call that it does not end.
        peers: those that have completed it.
        sure: this proves something of the rank alone: nobody completes such a call before all have started it.
        ahead: where the GPU has not even come to the call: what is known of that.
    """

    rank: int
    call: Collective
    peers: tuple[int, ...]
    sure: bool
    ahead: StreamProgress | None = None


def device_late(view: View) -> Verdict | None:
    """A rank's GPU does not complete a collective that its peers' GPUs have completed, or does not come to it. The
    rank's host had enqueued it.

    Example:
        error[SL318]: the GPU of rank 1 has not completed all_reduce #12, and its peers have; its host had enqueued it

    How it was concluded: with NCCL a host enqueues a call, its kernel starts, and it completes. The recorders of all
    ranks are compared at the first call of each group that a rank has not completed. Where a peer has completed it, all
    members had come, so what does not go on is this rank's GPU. Two kinds of calls say less:
    - in a broadcast, reduce, gather or scatter one may be through early: only one that is behind all others is named;
    - in an all_to_all all must have enqueued it, and sizes may not agree: confidence is low.
    Of a run that is watched it is also known how far each GPU has come. A CUDA event stands ahead of each call of
    Python's and of DDP's backward passes. If one is outstanding ahead of the first open call, then what the host
    enqueued before it does not end: a kernel, most often. Ranks that wait for such a rank are its victims.

    What to do: look at that GPU: Xid messages in the kernel log, `nvidia-smi -q`, ECC errors, a kernel without an end
    (its stack by cuda-gdb). `CUDA_LAUNCH_BLOCKING=1` shows an exception that nobody has read yet where it happens.

    What it is not: a late host. A rank whose host has not enqueued the call is SL301, or a code for what it does
    instead.
    """
    late = _late_gpus(view)
    if not late or of_several_moments(view.case):
        return None
    culprits = {gpu.rank for gpu in late}
    idlers = {rank for rank, _ in view.graph.sinks} - culprits
    first = min(late, key=lambda gpu: (gpu.call.t, gpu.rank))
    facts = view.by_rank[first.rank]
    own = next((call for call in facts.collectives if _same(call, first.call)), first.call)
    return hang_verdict(
        view,
        "SL318",
        _headline(late, first.call),
        tuple(gpu.rank for gpu in late),
        call=first.call,
        location=own.location or next(iter(frames_at(facts, own, own.thread)), None),
        because=(
            *map(_line, late),
            *((f"{is_waiting(idlers)} for nobody, with less enqueued than on other ranks",) if idlers else ()),
            *gaps(view.case),
            *waiters(view),
            *(ground(view.case, view.graph.waits) if view.from_dumps else ()),
        ),
        remedy=f"look at {'that GPU' if len(late) == 1 else 'those GPUs'}: Xid messages in the kernel log, "
        "`nvidia-smi -q`, a kernel that does not end",
        confidence=_confidence(view.case, late, idlers),
        waiting={wait.rank for wait in view.graph.waits} - culprits,
    )


def _late_gpus(view: View) -> list[LateGpu]:
    """The GPUs that do not end what their peers have completed; where that may be for other reasons in an exchange,
    those that have not come to their first call."""
    recorders = _Recorders(view)
    late = [gpu for facts in view.case.ranks if (gpu := _late_gpu(facts, recorders)) is not None]
    if not all(is_exchange(gpu.call.op) for gpu in late):
        return late
    ahead = [(facts, call) for facts in view.case.ranks if (call := ahead_of(facts)) is not None]
    return [_ahead(facts, call, recorders) for facts, call in ahead] or late


@dataclass(frozen=True)
class _Recorders:
    """What the recorders of all ranks are compared by."""

    view: View

    @cached_property
    def members(self) -> Mapping[str, tuple[int, ...]]:
        """Global ranks, by group."""
        return {group.name: group.ranks for group in self.view.case.groups}

    @cached_property
    def table(self) -> Table:
        """The counters of groups that can be compared."""
        return comparable(self.view.case) if self.view.graph.waits else {}

    @cached_property
    def blocked(self) -> set[int]:
        """The ranks that wait for others of this node."""
        return {wait.rank for wait in self.view.graph.waits if wait.blockers}

    @cached_property
    def _completed(self) -> dict[tuple[str, int], frozenset[int]]:
        return {}

    def completed(self, call: Collective) -> frozenset[int]:
        """The ranks that have completed a call's number: looked up once for all that have not."""
        key = (call.group, call.seq)
        if key not in self._completed:
            counted, ranks = self.table.get(call.group, {}), self.view.by_rank
            there = [rank for rank in self.members.get(call.group, ()) if rank in ranks]
            done = (rank for rank in there if has_completed(ranks[rank], call, counted.get(rank)))
            self._completed[key] = frozenset(done)
        return self._completed[key]

    def others(self, facts: RankFacts, call: Collective) -> list[int]:
        """The other members of a call's group."""
        return [rank for rank in self.members.get(call.group, ()) if rank != facts.rank]


def _headline(late: list[LateGpu], call: Collective) -> str:
    who, which = names(gpu.rank for gpu in late), f"{label(call)}{of_group(call)}"
    if late[0].ahead is not None:
        whose = f"the GPU{'s' * (len(late) > 1)} of {who}"
        return f"a kernel on {whose} does not end: it was enqueued before {which}{at(call.location)}"
    if len(late) > 1:
        return f"the GPUs of {who} have not completed what their hosts had enqueued, and peers have"
    return f"the GPU of {who} has not completed {which}, and its peers have; its host had enqueued it"


def _same(one: Collective, other: Collective) -> bool:
    return not one.is_message and (one.group, one.seq) == (other.group, other.seq)


def _late_gpu(facts: RankFacts, recorders: _Recorders) -> LateGpu | None:
    """Which call the rank's GPU does not end, of the first one of each group: what proves it comes first."""
    late = [*_completed_by_peers(facts, recorders)] if of_nccl(facts) else []
    if not late:
        return None
    first = min(late, key=lambda one: (not one.sure, one.call.t, one.call.group))
    if first.sure:
        return first
    if facts.rank in recorders.blocked:
        return None
    if first.call.op != UNTOLD:
        return first
    # By counters alone, a group of three or more may be one of messages, in which each rank is at another number.
    pair = len(recorders.members[first.call.group]) == 2
    return first if not recorders.view.graph.sinks and (len(late) > 1 or pair) else None


def _completed_by_peers(facts: RankFacts, recorders: _Recorders) -> Iterator[LateGpu]:
    """The rank's first uncompleted call of each group, where peers have completed it and this may tell something."""
    ranks = recorders.view.by_rank
    for call in first_on_device(facts) or untold(facts, recorders.table):
        counted = recorders.table.get(call.group, {})
        others = recorders.others(facts, call)
        completed = recorders.completed(call)
        peers = [rank for rank in others if rank in completed]
        sure = call.op != UNTOLD and not has_root(call.op)
        if is_exchange(call.op):  # who has completed it may have done so without those that have not come
            there = [rank for rank in others if rank in ranks]
            sure = all(has_enqueued(ranks[rank], call, counted.get(rank)) for rank in there)
        if peers and (sure or (_went_on_together(counted, others) if call.op == UNTOLD else peers == others)):
            yield LateGpu(facts.rank, call, tuple(peers), sure)


def ahead_of(facts: RankFacts) -> Collective | None:
    """The first call that is under way on the rank's device, of whichever group or pair of ranks, if the device has not
    come to it.

    What the host had enqueued before it is over, as far as that is known, so a kernel is not. Where an earlier call is
    under way, the stream may wait for that one.
    """
    behind = facts.stream.outstanding if facts.stream is not None else None
    call = _first(facts)
    if behind is None or call is None:
        return None
    if call.location is None and behind.location is not None:
        return None  # the mark of a later call of Python's: one before DDP's would be of a call that comes first
    return call if behind.t <= call.t else None


def _ahead(facts: RankFacts, call: Collective, recorders: _Recorders) -> LateGpu:
    return LateGpu(facts.rank, call, tuple(recorders.others(facts, call)), True, facts.stream)


def _first(facts: RankFacts) -> Collective | None:
    """The earliest call under way on the device, by the rank's own record or by the recorders', in time of the former.
    None where the own record does not reach back to the first message: the recorders number these otherwise."""
    own = [call for call in facts.collectives if is_under_way(call)]
    recorded = [call for call in facts.recorded or () if is_under_way(call)]
    if sum(call.is_message for call in recorded) > sum(call.is_message for call in own):
        return None
    in_own = {(call.group, call.seq) for call in own if not call.is_message}
    shift = _shift(facts)
    of_cpp = [
        dataclasses.replace(call, t=call.t - shift)
        for call in recorded
        if not (call.is_message or (call.group, call.seq) in in_own)
    ]
    return min((*own, *of_cpp), key=lambda call: call.t, default=None) if recorded else None


def _shift(facts: RankFacts) -> float:
    """Seconds by which the recorder's clock, which is set from time to time, is ahead of that of the rank's own record:
    by the calls that stand in both."""
    own = {(call.group, call.seq): call.t for call in facts.collectives if not call.is_message}
    shifts = [call.t - own[call.group, call.seq] for call in facts.recorded or () if (call.group, call.seq) in own]
    return min(shifts, default=0.0)


def _went_on_together(counted: Mapping[int, GroupProgress], others: list[int]) -> bool:
    """Whether all others of a group are known by counters, and two of them, or the only one, have come furthest."""
    completed = [counted[rank].completed for rank in others if rank in counted]
    return len(completed) == len(others) and completed.count(max(completed)) >= min(2, len(others))


def _line(late: LateGpu) -> str:
    """What the rank's GPU does not end, and who has; or between which lines it stands."""
    if late.ahead is not None:
        reached = late.ahead.reached
        text = f"the GPU of rank {late.rank} has not come to {label(late.call)}{at(late.call.location)}"
        return text + (f", and has passed {reached.call}{at(reached.location)}" if reached is not None else "")
    whose = f"{names(late.peers)} {'has' if len(late.peers) == 1 else 'have'}"
    return f"rank {late.rank} has not completed {label(late.call)} of group {late.call.group}, and {whose}"


def _confidence(case: Case, late: list[LateGpu], idlers: set[int]) -> Confidence:
    """Low where

    - it is an exchange, or the operations are not known,
    - nothing is known of a rank that has a group with one of these,
    - or somebody's host is late as well.
    """
    culprits = {one.rank for one in late}
    members = {rank for group in case.groups if culprits & {*group.ranks} for rank in group.ranks}
    lost = any(facts.recorded is None for facts in case.ranks if facts.rank in members)
    doubtful = any(is_exchange(one.call.op) or not one.sure for one in late)
    return "low" if lost or idlers or doubtful else "medium"

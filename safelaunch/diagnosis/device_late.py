"""Ranks whose host has done its part, and whose GPU has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from safelaunch.diagnosis.dumps import from_dumps, gaps, ground, of_group, of_several_moments
from safelaunch.diagnosis.graph import Graph, graph
from safelaunch.diagnosis.hang import hang_verdict, label, waiters
from safelaunch.diagnosis.progress import (
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
from safelaunch.diagnosis.waits import first_on_device, is_under_way
from safelaunch.diagnosis.wording import at, names
from safelaunch.model import (
    Case,
    Collective,
    Confidence,
    GroupProgress,
    Location,
    RankFacts,
    StreamProgress,
    Verdict,
)

Members = Mapping[str, tuple[int, ...]]  # global ranks, by group
COALESCED = "coalesced"  # a launch of several calls, as torch's recorder has it
BATCHED = ("isend", "irecv")  # how batch_isend_irecv issues its messages


@dataclass(frozen=True)
class Held:
    """A rank whose GPU does not end `call`, which `peers` have completed. `sure` says that this proves something of the
    rank alone: nobody completes such a call before all have started it. Where the GPU has not even come to `call`,
    `ahead` is what is known of that."""

    rank: int
    call: Collective
    peers: tuple[int, ...]
    sure: bool
    ahead: StreamProgress | None = None


def device_late(case: Case) -> Verdict | None:
    """A rank's GPU has not completed a collective that its peers have completed, or has not come to it; the rank's host
    had enqueued it.

    How it was concluded: with NCCL a call has three moments: the host enqueues it, its kernel starts, it completes. The
    recorders of all ranks are compared at the first call of each group that a rank has not completed. Where a peer has
    completed it, all members had come, and the data was there: what does not go on is this rank's own GPU, whatever its
    host has enqueued since. In a broadcast, a reduce, a gather or a scatter one may be through before others have come,
    so there only one that is behind all others is named; in an all_to_all all must have enqueued it, and of several
    ranks that do not complete it the split sizes may not agree, which makes this low confidence. Where only
    counters are left, the operation is not known; then a rank is named that waits for nobody in any other group. Ranks
    that wait for such a rank are its victims.
    Of a run that is watched it is also known how far each GPU has come: a CUDA event stands ahead of each call of
    Python's, and of DDP's backward passes. If one is outstanding ahead of the first call that is, then what the host
    enqueued before both does not end: a kernel, most often. The line of the last event that was reached is told, too.
    Where a message stands between the two events, and is not known to have ended, the device may wait for its peer, and
    nothing is concluded.

    What to do: look at that GPU: Xid messages in the kernel log, `nvidia-smi -q`, ECC errors, a kernel without an end
    (its stack by cuda-gdb, or `py-spy dump --native`), an exception that nobody has read yet
    (`CUDA_LAUNCH_BLOCKING=1` shows it where it happens).
    """
    found = graph(case)
    table = comparable(case) if found.waits else {}
    ranks = {facts.rank: facts for facts in case.ranks}
    members = {group.name: group.ranks for group in case.groups}
    held = [one for facts in case.ranks if (one := _held(facts, ranks, members, found, table)) is not None]
    held = held or [one for facts in case.ranks if (one := _ahead(facts, members)) is not None]
    if not held or of_several_moments(case):
        return None
    culprits = tuple(one.rank for one in held)
    first = min(held, key=lambda one: (one.call.t, one.rank))
    call = f"{label(first.call)}{of_group(first.call)}"
    idlers = {rank for rank, _ in found.sinks} - {*culprits}
    summary = f"the GPU of {names(culprits)} has not completed {call}, and its peers have; its host had enqueued it"
    remedy = (
        f"look at {'that GPU' if len(held) == 1 else 'those GPUs'}: Xid messages in the kernel log, "
        "`nvidia-smi -q`, a kernel that does not end"
    )
    if _is_one_exchange(held):
        summary = f"{names(culprits)} do not complete {call} with each other, and their peers have completed it"
        remedy = (
            "compare the split sizes that these ranks pass: what one sends, the other has to expect; else " + remedy
        )
    elif len(held) > 1:
        summary = f"the GPUs of {names(culprits)} have not completed what their hosts had enqueued, and peers have"
    if held[0].ahead is not None:
        whose = f"the GPU{'s' * (len(held) > 1)} of {names(culprits)}"
        summary = f"a kernel on {whose} does not end: it was enqueued before {call}{at(first.call.location)}"
    return hang_verdict(
        case,
        "SL318",
        summary,
        culprits,
        call=first.call,
        location=first.call.location or _line_of(first.call, ranks[first.rank]),
        because=(
            *(_line(one) for one in held),
            *((f"{names(idlers)} wait for nobody, and have enqueued less than their peers",) if idlers else ()),
            *gaps(case),
            *waiters(case, found),
            *(ground(case, found.waits) if from_dumps(case) else ()),
        ),
        remedy=remedy,
        confidence=_confidence(case, held, idlers),
        waiting={wait.rank for wait in found.waits} - {*culprits},
    )


def _held(
    facts: RankFacts, ranks: Mapping[int, RankFacts], members: Members, found: Graph, table: Table
) -> Held | None:
    """Which call the rank's GPU does not end, of the first one of each group: what proves it comes first."""
    held = [*_completed_by_peers(facts, ranks, members, table)] if of_nccl(facts) else []
    if not held:
        return None
    first = min(held, key=lambda one: (not one.sure, one.call.t, one.call.group))
    if first.sure:
        return first
    if any(wait.blockers for wait in found.waits if wait.rank == facts.rank):
        return None
    if first.call.op != UNTOLD:
        return first
    # By counters alone, a group of three or more may be one of messages, in which each rank is at another number.
    pair = len(members[first.call.group]) == 2
    return first if not found.sinks and (len(held) > 1 or pair) else None


def _completed_by_peers(
    facts: RankFacts, ranks: Mapping[int, RankFacts], members: Members, table: Table
) -> Iterator[Held]:
    """The rank's first uncompleted call of each group, where peers have completed it and this may tell something."""
    for call in first_on_device(facts) or untold(facts, table):
        if call.op == COALESCED:
            continue  # messages, most often, and nothing says of whom: it does not compare
        counted = table.get(call.group, {})
        others = [rank for rank in members.get(call.group, ()) if rank != facts.rank]
        known = [rank for rank in others if rank in ranks]
        peers = [rank for rank in known if has_completed(ranks[rank], call, counted.get(rank))]
        sure = call.op != UNTOLD and not has_root(call.op)
        if is_exchange(call.op):  # who has completed it may have done so without those that have not come
            sure = all(has_enqueued(ranks[rank], call, counted.get(rank)) for rank in known)
        if peers and (sure or (_went_on_together(counted, others) if call.op == UNTOLD else peers == others)):
            yield Held(facts.rank, call, tuple(peers), sure)


def _ahead(facts: RankFacts, members: Members) -> Held | None:
    """The first call that is under way on the rank's device, if the device has not come to it."""
    behind = facts.stream.outstanding if facts.stream is not None else None
    call = _first(facts)
    if behind is None or call is None:
        return None
    if call.location is None and behind.location is not None:
        return None  # the mark of a later call of Python's: one before DDP's would be of a call that comes first
    if behind.t > (call.t if call.location is not None else call.t - _shift(facts)):
        return None
    if _may_wait_in_message(facts):
        return None
    others = tuple(rank for rank in members.get(call.group, ()) if rank != facts.rank)
    return Held(facts.rank, call, others, True, facts.stream)


def _line_of(call: Collective, facts: RankFacts) -> Location | None:
    """Where the rank made a collective, by its own record."""
    own = (one for one in facts.collectives if not one.is_message)
    return next((one.location for one in own if (one.group, one.seq) == (call.group, call.seq)), None)


def _is_one_exchange(held: list[Held]) -> bool:
    """Whether several ranks stand in one all_to_all: then they may wait for each other there, and no GPU is late."""
    calls = {(one.call.group, one.call.seq, one.call.op) for one in held}
    return len(held) > 1 and len(calls) == 1 and is_exchange(held[0].call.op)


def _may_wait_in_message(facts: RankFacts) -> bool:
    """Whether the device may stand in a message, and not in a kernel: in one that was issued between the last mark that
    it has reached and the next one, and whose end is not known. That of batched messages never is: nccl2's recorder has
    them as completed when they are issued. What the rank's own record no longer holds may be a message, too."""
    assert facts.stream is not None
    reached, behind = facts.stream.reached, facts.stream.outstanding
    if reached is None or behind is None:
        return False
    between = [call for call in facts.collectives if reached.t <= call.t < behind.t]
    lost = not facts.collectives or min(call.t for call in facts.collectives) > behind.t
    return lost or any(call.is_message and (call.op in BATCHED or is_under_way(call)) for call in between)


def _first(facts: RankFacts) -> Collective | None:
    """The earliest call under way on the device: as the rank's own record has it, where that does."""
    under_way = [call for call in facts.recorded or () if is_under_way(call)]
    if not under_way:
        return None
    first = min(under_way, key=lambda call: call.t)
    own = [call for call in facts.collectives if is_under_way(call)]
    if first.is_message:
        return min((call for call in own if call.is_message), key=lambda call: call.t, default=None)
    return next((call for call in own if (call.group, call.seq) == (first.group, first.seq)), first)


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


def _line(held: Held) -> str:
    """What the rank's GPU does not end, and who has; or between which lines it stands."""
    if held.ahead is not None:
        reached = held.ahead.reached
        text = f"the GPU of rank {held.rank} has not come to {label(held.call)}{at(held.call.location)}"
        return text + (f", and has passed {reached.call}{at(reached.location)}" if reached is not None else "")
    whose = f"{names(held.peers)} {'has' if len(held.peers) == 1 else 'have'}"
    return f"rank {held.rank} has not completed {label(held.call)} of group {held.call.group}, and {whose}"


def _confidence(case: Case, held: list[Held], idlers: set[int]) -> Confidence:
    """Low where the operations are not known, where nothing is known of a rank that has a group with one of these, or
    where somebody's host is late as well."""
    culprits = {one.rank for one in held}
    members = {rank for group in case.groups if culprits & {*group.ranks} for rank in group.ranks}
    lost = any(facts.recorded is None for facts in case.ranks if facts.rank in members)
    doubtful = lost or bool(idlers) or _is_one_exchange(held) or not all(one.sure for one in held)
    return "low" if doubtful else "medium"

"""How far ranks have come in each group by the counters of NCCL's recorders, where their numbers compare.

A call has three moments: its host enqueues it, its kernel starts, it completes. Nobody completes a collective before
all have started it, but one with a root, who may go on when its data is sent, and an all_to_all in which another has
nothing for it. So a member that has completed what another has not enqueued says that the numbers do not compare: they
count messages, or are of different moments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from safelaunch.diagnosis.waitgraph.calls import canonical, is_under_way
from safelaunch.model import Case, Collective, GroupProgress, RankFacts

# Some come out of these before others have gone in.
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
UNTOLD = "collective"  # the operation of a call that only counters tell of

Table = Mapping[str, Mapping[int, GroupProgress]]  # by group and rank


def of_nccl(facts: RankFacts) -> bool:
    """Whether NCCL's recorder has told of the rank, by either backend."""
    return any(one.backend.startswith("nccl") for one in facts.progress)


def idle(facts: RankFacts) -> bool:
    """Whether all that the rank has enqueued on its GPU is over: what keeps it is its host."""
    # nccl2 shows the number that ended last: of calls on several streams (FSDP2) that need not be the highest one.
    lists = facts.watched and bool(facts.recorded)
    counted = not lists and any(one.pending for one in facts.progress if one.backend.startswith("nccl"))
    return of_nccl(facts) and not counted and not any(map(is_under_way, facts.recorded or ()))


def untold(facts: RankFacts, table: Table) -> list[Collective]:
    """The first uncompleted call of each group of a rank of which only counters tell: in which of them its GPU is, and
    which stand behind that one, nobody knows."""
    if not is_counted_only(facts):
        return []
    return [
        Collective(UNTOLD, one.group, one.completed + 1, -1, "", done=False, t=0.0, state="enqueued")
        for one in facts.progress
        if one.pending and facts.rank in table.get(one.group, ())
    ]


def is_counted_only(facts: RankFacts) -> bool:
    """Whether calls of a rank are pending by its counters, and no entry shows one."""
    shown = any(map(is_under_way, facts.recorded or ()))
    return of_nccl(facts) and not idle(facts) and not shown


def comparable(case: Case) -> Table:
    """Progress of all ranks in the groups in which their numbers compare."""
    if not any(of_nccl(facts) for facts in case.ranks):
        return {}
    table = _by_group(case)
    calls = [call for facts in case.ranks for call in facts.recorded or ()]
    ops = {(call.group, call.seq): call.op for call in calls if not call.is_message and call.op != UNTOLD}
    unlike = {call.group for call in calls if call.is_message}  # messages count, too
    return {
        group: ranks
        for group, ranks in table.items()
        if group not in unlike and not _count_otherwise(ranks.values()) and not _contradict(group, ranks, ops)
    }


def _by_group(case: Case) -> dict[str, dict[int, GroupProgress]]:
    """What NCCL's recorders have counted, by group and rank."""
    table: dict[str, dict[int, GroupProgress]] = {}
    for facts in case.ranks:
        for one in facts.progress:
            if one.group and one.backend.startswith("nccl"):
                table.setdefault(one.group, {})[facts.rank] = one
    return table


def _count_otherwise(ranks: Collection[GroupProgress]) -> bool:
    """Whether some of a group have counted messages as well, or were counted by another backend."""
    return any(one.messages for one in ranks) or len({one.backend for one in ranks}) > 1


def _contradict(group: str, ranks: Mapping[int, GroupProgress], ops: Mapping[tuple[str, int], str]) -> bool:
    """Whether a member has completed what another has not enqueued, though all had to come to it."""
    least = min(one.enqueued for one in ranks.values())
    most = max(one.completed for one in ranks.values())
    between = [ops.get((group, number), "") for number in range(least + 1, min(most, least + 100) + 1)]
    return any(not (has_root(op) or is_exchange(op)) for op in between)


def has_root(op: str) -> bool:
    """Whether one rank has a part of its own in an operation."""
    return canonical(op) in ROOTED


def is_exchange(op: str) -> bool:
    """Whether an operation is an all_to_all: ranks that have nothing for one another do not wait for one another."""
    return canonical(op).startswith("alltoall")


def has_enqueued(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether a rank's host has enqueued a collective, by its counters or by its entries."""
    if own is not None:
        return own.enqueued >= call.seq
    return any(one.group == call.group and one.seq >= call.seq for one in facts.recorded or () if not one.is_message)


def has_completed(facts: RankFacts, call: Collective, own: GroupProgress | None) -> bool:
    """Whether a rank's GPU has completed a collective, by its counters or by its entries: a group's end in order."""
    shown = next((one for one in facts.recorded or () if (one.group, one.seq) == (call.group, call.seq)), None)
    if shown is not None and not shown.is_message and shown.op != UNTOLD:
        return shown.state == "completed"
    if own is not None:
        return own.completed >= call.seq
    return any(
        one.state == "completed" and one.group == call.group and one.seq >= call.seq
        for one in facts.recorded or ()
        if not one.is_message
    )

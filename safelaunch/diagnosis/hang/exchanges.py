"""Ranks that cannot complete an all_to_all with one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from safelaunch.diagnosis.hang.device_late import ahead_of
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import first_on_device, is_under_way
from safelaunch.diagnosis.waitgraph.counters import is_exchange
from safelaunch.diagnosis.wording import label, names
from safelaunch.model import Case, Collective, RankFacts, Verdict

Meeting = Mapping[int, Collective]  # what each member of a group has of one exchange, by its recorder


def cannot_exchange(view: View) -> Verdict | None:
    """Several ranks do not complete an all_to_all which all have enqueued, and which others may have completed.

    How it was concluded: in an all_to_all each rank completes when it has sent and received its own parts, so those
    that have completed it say nothing of the GPUs of the others: two ranks whose split sizes do not agree wait for each
    other, and for nobody else. Where the Flight Recorders show that all ranks together send more or fewer elements than
    they expect, sizes are wrong (SL410); whose, they do not show. Else nobody is named, with low confidence (SL399).
    Where a CUDA event says that a GPU has not even come to the call, that is told (SL318).

    What to do: compare input and output split sizes of these ranks; mostly they are exchanged before, in a call of
    their own.
    """
    ranks = view.by_rank
    for meeting in _exchanges(view.case):
        incomplete = [rank for rank, call in meeting.items() if is_under_way(call)]
        balance = _balance(meeting)
        if not any(balance) and (len(incomplete) < 2 or len(incomplete) == len(meeting)):
            continue
        if any(ahead_of(ranks[rank]) is not None for rank in incomplete):
            return None
        return _verdict(view, ranks, meeting, incomplete, balance)
    return None


def _exchanges(case: Case) -> Iterator[Meeting]:
    """The exchanges of NCCL that a rank is in before all else of that group, and that all members have enqueued."""
    members = {group.name: group.ranks for group in case.groups}
    recorded = {
        facts.rank: {(call.group, call.seq): call for call in facts.recorded or () if not call.is_message}
        for facts in case.ranks
    }
    for group, seq in sorted(_first_exchanges(case)):
        ranks = members.get(group, ())
        meeting = {rank: recorded[rank][group, seq] for rank in ranks if (group, seq) in recorded.get(rank, {})}
        alike = all(is_exchange(call.op) and call.state for call in meeting.values())
        if alike and len(meeting) == len(ranks):
            yield meeting


def _first_exchanges(case: Case) -> set[tuple[str, int]]:
    """Group and number of each exchange that is under way on a rank before all else of that group."""
    first = (call for facts in case.ranks for call in first_on_device(facts))
    return {(call.group, call.seq) for call in first if is_exchange(call.op)}


def _balance(meeting: Meeting) -> tuple[int, ...]:
    """By how many elements all ranks together send more than they expect, where the recorders tell; else nothing."""
    if any(call.numel < 0 or len(call.outputs) != 1 for call in meeting.values()):
        return ()
    return (sum(call.numel - call.outputs[0] for call in meeting.values()),)


def _verdict(
    view: View, ranks: Mapping[int, RankFacts], meeting: Meeting, incomplete: list[int], balance: tuple[int, ...]
) -> Verdict:
    call = meeting[incomplete[0]]
    own = next((c for c in ranks[incomplete[0]].collectives if (c.group, c.seq) == (call.group, call.seq)), call)
    others = meeting.keys() - {*incomplete}
    done = f", and {names(others)} {'has' if len(others) == 1 else 'have'} completed it" if others else ""
    whom = " with each other" if len(incomplete) > 1 else ""
    verb = "does" if len(incomplete) == 1 else "do"
    sent, wanted = sum(c.numel for c in meeting.values()), sum(sum(c.outputs) for c in meeting.values())
    why = f"all ranks together send {sent} elements, and expect {wanted}: split sizes do not agree"
    if not any(balance):
        why = "each rank completes it for itself: split sizes may not agree, or a GPU or a link may be late"
    return hang_verdict(
        view,
        "SL410" if any(balance) else "SL399",
        f"{names(incomplete)} {verb} not complete {label(own)}{whom}{done}",
        (),
        location=own.location,
        call=own,
        because=(why, *waiters(view)),
        remedy=f"compare the input and output split sizes that {names(incomplete)} pass",
        confidence="medium" if any(balance) else "low",
        waiting=meeting,
    )

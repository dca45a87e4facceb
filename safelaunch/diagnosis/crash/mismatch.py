"""Ranks that met in one collective with different operations or tensors."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from safelaunch.codes import CATALOGUE, EXIT_HANG, EXIT_SCRIPT_FAILED
from safelaunch.diagnosis.blame import history
from safelaunch.diagnosis.blame.deviation import Deviation
from safelaunch.diagnosis.blame.group_order import group_order
from safelaunch.diagnosis.blame.uneven_data import had_fewer
from safelaunch.diagnosis.crash.first_failure import broken_by_gloo, primary, secondary, unexplained
from safelaunch.diagnosis.crash.swapped import swapped
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import is_irreversible, is_under_way
from safelaunch.diagnosis.waitgraph.record import LEAVING, current_calls
from safelaunch.diagnosis.wording import at, names
from safelaunch.model import Case, Collective, RankFacts, Verdict
from safelaunch.model.operations import SAME_SIZE

# gloo wants one size of them as well, and breaks the connection; NCCL takes what comes, and waits for nobody.
BREAKS_ON_GLOO = {"all_gather", "gather", "scatter"}

# What may be uneven from rank to rank, and has no root, which would come to it from a line of its own.
UNEVEN = ("all_to_all", "all_gather")

REMEDIES = {
    "SL302": "",
    "SL410": "compare the shapes at this line on all ranks",
    "SL411": "look for a collective under a condition that differs between ranks",
}

Meeting = list[tuple[RankFacts, Collective]]


def size_mismatch(view: View) -> Verdict | None:
    """Ranks brought tensors of different size or type to the same collective.

    Example:
        error[SL410]: rank 2 brought 10 x float32 to all_reduce #12, its peers 1000 x float32

    How it was concluded: the ranks' records show one operation at one number of one group, with different numbers of
    elements or types. No rank failed for a reason of its own. An all_gather may be uneven. It counts where gloo broke
    it, or where the Flight Recorders show that each rank wants from all others the size that it brings. An all_to_all
    counts where all ranks together send more or fewer elements than they expect; then nobody is named. In logs, DDP's
    word for different models counts as well (`appears not to match sizes of the same param`).

    The rank at fault is

    - with three votes or more, the one that differs from all the others,
    - else the one that departs from the size that all had brought to this line before,
    - or the one that has come to its line with another group than ever, where all others come as always.

    Otherwise both lines are shown. The rank that dies need not be the one at fault: gloo aborts whichever rank receives
    the unexpected bytes (`Received data size doesn't match expected size`). NCCL hangs or corrupts.

    What to do: compare the shapes at the named line on all ranks (uneven last batch, data-dependent shapes).

    What it is not: ranks in different operations. That is SL411 where they failed, and SL302 where they wait.
    """
    for meeting in _meetings(view.case):
        operations = {call.op for _, call in meeting}
        if len(operations) == 1 and (operations <= SAME_SIZE or _broke(view.case, meeting) or _cannot_fit(meeting)):
            brought = {facts.rank: (call.numel, call.dtype) for facts, call in meeting}
            if len(set(brought.values())) > 1:
                if swapped(meeting) is not None:
                    return None  # of two threads neither brings a wrong size
                sizes = {rank: f"{numel} x {dtype}" for rank, (numel, dtype) in brought.items()}
                return _of_groups(view.case, _verdict(view.case, "SL410", meeting, sizes), meeting)
    return None


def _of_groups(case: Case, verdict: Verdict, meeting: Meeting) -> Verdict:
    """The verdict, where it is not the sizes that are wrong but the groups in which they came."""
    order = group_order(case, max((call for _, call in meeting), key=lambda call: call.group_size))
    if order is None:
        return verdict
    return dataclasses.replace(
        verdict, summary=order.summary, culprit_ranks=(), pid=None, location=order.made or verdict.location,
        confidence="high", remedy=order.remedy,
    )  # fmt: skip


def in_two_threads(view: View) -> Verdict | None:
    """Two threads of a rank make collectives in one process group, and came in another order than on another rank.

    How it was concluded: at two numbers that follow each other, ranks made the same two calls, each from a thread of
    its own, and the order is another one on one of them. So neither their shapes nor their lines are wrong.

    What to do: give one of the two threads a process group of its own.
    """
    for meeting in _meetings(view.case):
        found = swapped(meeting) if len({(c.op, c.numel, c.dtype) for _, c in meeting}) > 1 else None
        if found is not None:
            hung = view.case.incident.kind == "hang"
            vote = dict.fromkeys((facts.rank for facts, _ in meeting), "")
            verdict = _verdict(view.case, "SL302" if hung else "SL411", meeting, vote)
            return dataclasses.replace(
                verdict,
                summary=found.summary,
                culprit_ranks=(),
                pid=None,
                location=found.place,
                because=found.because,
                confidence="high",
                remedy=found.remedy,
            )
    return None


def operation_mismatch(view: View) -> Verdict | None:
    """Ranks called different collectives at the same number of the same group, and failed of it.

    Example:
        error[SL411]: rank 2 brought barrier to collective #12, its peers all_reduce

    How it was concluded: the ranks' records show different operations at the same number, and no rank failed for a
    reason of its own. A collective that one rank skipped, or made once too often, shows in this way at the next one.
    The rank at fault is

    - with three votes or more, the one that differs from all the others,
    - else the one that has come to its line with another group than ever, where all others come as always.

    Otherwise both lines are shown.

    What to do: look for a collective under a condition that differs between ranks (`if rank == 0`).

    What it is not: ranks that wait in different collectives and have not failed (SL302), or different sizes in one
    operation (SL410).
    """
    for meeting in _meetings(view.case):
        brought = {facts.rank: call.op for facts, call in meeting}
        if len(set(brought.values())) > 1 and swapped(meeting) is None:
            return _verdict(view.case, "SL411", meeting, brought)
    return None


def line_mismatch(view: View) -> Verdict | None:
    """Ranks met in one collective from different lines: one of them had skipped a call, or made one too often.

    How it was concluded: gloo broke the connections inside a collective whose sizes may differ from rank to rank (an
    all_to_all, an all_gather), so that the sizes alone prove nothing. As far as the records reach, all ranks had come
    to every number of that group at one line before. To this one a single rank came at another of these lines.

    What to do: see what led the named rank past the other line: an exception that was caught, a condition.
    """
    for meeting in _meetings(view.case):
        uneven = all(call.op.startswith(UNEVEN) for _, call in meeting)
        found = history.changed_line(meeting) if uneven and _is_broken(view.case, meeting) else None
        if found is not None:
            brought = {f.rank: f"{c.op} of line {c.location.line if c.location else '?'}" for f, c in meeting}
            return _verdict(view.case, "SL411", meeting, brought, found)
    return None


def _is_broken(case: Case, meeting: Meeting) -> bool:
    """Whether a meeting of all ranks is what they lost their connections in, with gloo."""
    inside = case.incident.kind == "exit" and any(not call.done for _, call in meeting)
    return inside and len(meeting) == case.world_size and broken_by_gloo(case)


def _cannot_fit(meeting: Meeting) -> bool:
    """Whether ranks are in a gather, by their recorders, in which each wants from all others what it brings itself, and
    these bring something else. Uneven gathers are right where all ranks' lists of outputs say so."""
    if any(call.op != "all_gather" or not call.state for _, call in meeting):
        return False
    return all(_wants_its_own(call) for _, call in meeting)


def _wants_its_own(call: Collective) -> bool:
    """Whether all outputs of a gather are of the size that the rank brings: a tensor for each rank, or one of all."""
    together = call.outputs == (call.numel * call.group_size,) if call.group_size else False
    return call.numel > 0 and (together or (len(call.outputs) > 1 and {*call.outputs} == {call.numel}))


def _broke(case: Case, meeting: Meeting) -> bool:
    """Whether a gather in which ranks brought different sizes is what they lost their connections in."""
    return _is_broken(case, meeting) and {call.op for _, call in meeting} <= BREAKS_ON_GLOO


def _meetings(case: Case) -> list[Meeting]:
    """Ranks' calls that share group and number, latest last, where nothing else explains the failure."""
    if any(failure.nature != "abort" and not unexplained(failure) for failure in primary(case)):
        return []
    meetings = _recorded(case)
    meetings.update(_on_devices(case))
    # A rank that called twice under one number read the number from two threads: it proves nothing.
    sound = [m for m in meetings.values() if len({facts.rank for facts, _ in m}) == len(m) > 1]
    if case.incident.kind == "hang":  # what came back is no reason to wait
        sound = [m for m in sound if any(not (call.done or call.raised) for _, call in m)]
    return sorted(sound, key=lambda meeting: meeting[0][1].seq)


def _recorded(case: Case) -> dict[tuple[str, int], Meeting]:
    """Meetings by the ranks' own records: by group and number."""
    found: dict[tuple[str, int], Meeting] = {}
    for facts in case.ranks:
        for call in current_calls(facts):
            if not facts.watched and (call.issued or call.is_message):
                continue
            if call.seq > 0 and call.op != LEAVING:
                found.setdefault((call.group, call.seq), []).append((facts, call))
    return found


def _on_devices(case: Case) -> dict[tuple[str, int], Meeting]:
    """Meetings under way on devices, as the Flight Recorders of all who came have them.

    Calls that C++ makes are in no record of Python's, which has the lines of the others.
    """
    found: dict[tuple[str, int], Meeting] = {}
    for facts in case.ranks if case.incident.kind == "hang" else ():
        own = {(call.group, call.seq): call for call in facts.collectives if not call.is_message}
        for call in facts.recorded or () if facts.watched else ():
            if call.state and not call.is_message:
                key = call.group, call.seq
                of_python = own.get(key, call)
                line, thread, size = of_python.location, of_python.thread, of_python.group_size
                done = not is_under_way(call)
                came = dataclasses.replace(call, location=line, thread=thread, group_size=size, done=done)
                found.setdefault(key, []).append((facts, came))
    return {key: meeting for key, meeting in found.items() if any(is_under_way(call) for _, call in meeting)}


@dataclasses.dataclass(frozen=True)
class _Vote:
    """What ranks brought to one meeting, and whom that shows to be wrong.

    Args:
        meeting: the ranks, each with its call.
        brought: what each of them brought, by rank.
        usual: what most of them brought, or the peers of the one that is wrong.
        culprits: the one that is wrong; empty where that cannot be told.
        habit: how it departs from what ranks had done before, where that tells more than the votes.
    """

    meeting: Meeting
    brought: dict[int, str]
    usual: str
    culprits: tuple[int, ...] = ()
    habit: Deviation | None = None


def _vote(case: Case, code: str, meeting: Meeting, brought: dict[int, str], habit: Deviation | None) -> _Vote:
    """The vote of a meeting; a habit that is known already outweighs it."""
    votes = Counter(brought.values())
    usual, count = votes.most_common(1)[0]
    odd = tuple(rank for rank, what in brought.items() if what != usual)
    # A majority is trusted only when it leaves a single rank against at least two that agree, and when the members
    # of this node that have no vote could not turn it.
    missing = min(len(case.ranks), meeting[0][1].group_size or len(case.ranks)) - len(meeting)
    majority = len(odd) == 1 and count >= 2 and count > len(odd) + missing
    if habit is None and not majority:
        habit = _habit(case, meeting, code)
    if habit is not None:
        usual = next(what for what in votes if what != brought[habit.rank])
        return _Vote(meeting, brought, usual, (habit.rank,), habit)
    return _Vote(meeting, brought, usual, odd if majority else ())


def _verdict(
    case: Case, code: str, meeting: Meeting, brought: dict[int, str], habit: Deviation | None = None
) -> Verdict:
    vote = _vote(case, code, meeting, brought, habit)
    named = vote.culprits
    facts, call = next(((f, c) for f, c in meeting if f.rank in named), meeting[0])
    other = next((c for f, c in meeting if brought[f.rank] == vote.usual), meeting[-1][1])
    uneven = had_fewer(case, named)
    verdict = Verdict(
        code=code,
        slug=CATALOGUE[code].slug,
        kind="crash",
        summary=_summary(vote, call, call.op if code == "SL410" else "collective"),
        culprit_ranks=named,
        host=case.host,
        pid=facts.pid or None if named else None,
        location=call.location if named else other.location,
        operation=call.op,
        seq=call.seq,
        process_group=call.group,
        because=(*uneven, *((vote.habit.text,) if vote.habit is not None else ()), *_sides(vote)),
        secondary=secondary(case, named),
        confidence="high" if named and vote.habit is None else "medium",
        remedy="all ranks must make the same number of steps: look for uneven data" if uneven else REMEDIES[code],
        exit_code=EXIT_SCRIPT_FAILED,
    )
    if case.incident.kind != "hang":
        return verdict
    ranks = tuple(f.rank for f, _ in meeting)
    return dataclasses.replace(
        verdict, kind="hang", exit_code=EXIT_HANG, conclusive=is_irreversible(meeting), waiting=ranks
    )


def _summary(vote: _Vote, call: Collective, operation: str) -> str:
    if not vote.culprits:
        return f"ranks disagree about {operation} #{call.seq}, and the votes do not say who is wrong"
    whose = "peers" if len(vote.meeting) > 2 else "peer"
    brought = vote.brought[vote.culprits[0]]
    return f"{names(vote.culprits)} brought {brought} to {operation} #{call.seq}, its {whose} {vote.usual}"


def _sides(vote: _Vote) -> Iterator[str]:
    """Who brought what, and at which line, in a line for each of the things that were brought."""
    for what in Counter(vote.brought.values()):
        ranks = [rank for rank, thing in vote.brought.items() if thing == what]
        call = next(call for facts, call in vote.meeting if vote.brought[facts.rank] == what)
        yield f"{names(ranks)} brought {what}{at(call.location)}"


def _habit(case: Case, meeting: Meeting, code: str) -> Deviation | None:
    """Who departs from what ranks have done before, if that rank is one of these."""
    found = (history.changed_size(meeting) if code == "SL410" else None) or history.changed_group(case)
    return found if found is not None and found.rank in {facts.rank for facts, _ in meeting} else None

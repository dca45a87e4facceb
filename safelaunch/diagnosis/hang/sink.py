"""Ranks that do not come: the sinks of the wait-for graph, for which all others wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.blame import uneven_data
from safelaunch.diagnosis.blame.loop_exit import UNEVEN
from safelaunch.diagnosis.blame.rank_guard import OnlyCaller, only_caller
from safelaunch.diagnosis.sources import dumps
from safelaunch.diagnosis.stall.activity import UNSEEN
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.stall.stall import Stall
from safelaunch.diagnosis.verdicts import hang_verdict, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.calls import alive
from safelaunch.diagnosis.waitgraph.counters import idle
from safelaunch.diagnosis.waitgraph.graph import Graph
from safelaunch.diagnosis.waitgraph.wait import Wait, away_of
from safelaunch.diagnosis.wording import (
    OUT_OF_THE_CONDITION,
    at,
    below,
    call_at,
    in_brackets,
    label,
    names,
    of_group,
    peers_wait,
    under,
)
from safelaunch.model import Case, Confidence, Verdict


@dataclass(frozen=True)
class _Late:
    """The ranks that do not come, each with the reason for it, and the waits that they keep from ending."""

    view: View
    reasons: Mapping[int, Stall]
    blocked: tuple[Wait, ...]

    @cached_property
    def culprits(self) -> tuple[int, ...]:
        return tuple(sorted(self.reasons))

    @property
    def reason(self) -> Stall:
        """That of the first of them."""
        return self.reasons[self.culprits[0]]

    @cached_property
    def code(self) -> str:
        code = self.reason.code
        return "SL309" if code == "SL301" and before_init(self.blocked) else code


def never_entered(view: View) -> Verdict | None:
    """Ranks wait in a collective, or for a message, and one rank does not come. It waits for nobody.

    Example:
        error[SL301]: rank 2 sleeps in train_step (train.py:88), and 3 peers wait for it in all_reduce #12

    How it was concluded: a graph of who waits for whom is made from three sources, which are each rank's own record of
    its calls, torch's Flight Recorder and the stacks. Whoever stands at the end of all chains is named, with its line.
    What it does there comes from its stack and from the kernel. A system call is followed to its other end: the address
    of a connection, the process at the end of a pipe or with a file lock, the file system. Confidence is the number of
    sources that agree. Dumps of the Flight Recorder alone do not say what a rank does, so they give medium at most.

    What to do: look at the named line. See what the program waits for there, and who was to bring it about.

    What it is not: a proof that this rank's code is wrong. It may be late for a reason outside, such as a service that
    does not answer. Where the reason has a code of its own, that one is given: a stopped process, a held GIL, the
    kernel, a DataLoader, a checkpoint, locks.
    """
    late = _late(view)
    if late is None:
        return None
    if view.from_dumps:
        return _verdict_of_dumps(late)
    if view.from_outside and dumps.doubt(view.case, late.culprits, late.blocked):
        return None
    only = _only_caller(late)
    # Of two ranks, one that does not come is late more often than its peer waits where nobody has to come.
    unread = only is not None and only.condition is None and len(late.culprits) == 1 and not only.wait.away
    if only is not None and not unread:
        return _verdict_on_only_caller(view, only, late.reasons)
    return _verdict(late, unread=unread)


def before_init(blocked: Sequence[Wait]) -> bool:
    """A rank has not called `init_process_group`, and its peers wait for it there.

    Example:
        error[SL309]: rank 2 polls for something that does not come, in prepare_data (train.py:15), and 3 peers wait for
            it in init_process_group

    How it was concluded: the peers are inside `init_process_group`, by their own records and stacks, and this rank has
    never begun it. What it does instead comes from its stack and the kernel.

    What to do: look at the named line. Downloads and preparations of data on one rank belong behind the initialisation,
    with a barrier, or before the job.

    What it is not: a wrong MASTER_ADDR or MASTER_PORT. Then all ranks are inside the call, and it does not end (SL310).
    """
    return all(wait.call.group == "init" for wait in blocked)


def _late(view: View) -> _Late | None:
    """The ranks at the end of all chains of waits; None where one has ended, or has raised: other rules speak of it."""
    graph, ranks = view.graph, view.by_rank
    sinks = graph.sinks if view.from_dumps else graph.ends
    if not sinks or any(not alive(ranks[rank]) or ranks[rank].error is not None for rank, _ in graph.sinks):
        return None
    reasons = {rank: stall_of(ranks[rank], thread, view.now, view.case.source) for rank, thread in sinks}
    # Where all who wait are culprits themselves (all stopped inside one collective), their own waits tell which.
    own = (wait for wait in graph.waits if not reasons.keys().isdisjoint(wait.blockers))
    return _Late(view, reasons, graph.waiting_for(sorted(reasons)) or tuple(own))


def _only_caller(late: _Late) -> OnlyCaller | None:
    """The rank that may wait in a call which is its own alone."""
    if late.code != "SL301" or len(late.culprits) < len(late.blocked):
        return None
    return only_caller(late.view.case, late.blocked, late.culprits)


def _verdict(late: _Late, *, unread: bool) -> Verdict:
    """That ranks are late; `unread`: unless their peer waits in what it calls alone, which cannot be read."""
    view, culprits, reason, wait = late.view, late.culprits, late.reason, late.blocked[0]
    ran_out = uneven_data.has_run_out(view.case, culprits) if late.code == "SL301" else ()
    because = reason.because
    confidence = _confidence(view.case, culprits, view.graph, reason.sources)
    if ran_out:
        because = (*ran_out, f"rank {culprits[0]} {reason.what}", *because)
    elif unread:
        because = (f"what rank {wait.rank} stands below cannot be read: it may wait in what it calls alone", *because)
        confidence = "low"
    return hang_verdict(
        view,
        "SL303" if ran_out else late.code,
        _headline(culprits, reason, late.blocked, ran_out=bool(ran_out)),
        culprits,
        location=reason.location,
        call=wait.call,
        because=(*because, *_other_reasons(late), *waiters(view)),
        remedy=UNEVEN if ran_out else _remedy(late, reason),
        confidence=confidence,
        waiting={wait.rank for wait in late.blocked},
    )


def _other_reasons(late: _Late) -> Iterator[str]:
    """What each of several culprits does, and then what the ranks do that stand between them and those who wait."""
    alike: dict[str, list[int]] = {}
    for rank in late.culprits if len(late.culprits) > 1 else ():
        reason = late.reasons[rank]
        alike.setdefault(reason.what + at(reason.location), []).append(rank)
    for what, ranks in alike.items():
        yield f"{names(ranks)} {what}" if len(ranks) == 1 else f"{names(ranks)}: each {what}"
    view = late.view
    between = {rank: thread for rank, thread in view.graph.sinks if rank not in late.reasons}
    for rank, thread in sorted(between.items()):
        yield f"rank {rank} {stall_of(view.by_rank[rank], thread, view.now, view.case.source).what}"


def _does(rank: int, reason: Stall) -> str:
    return f"rank {rank} {reason.what}{at(reason.location)}"


# --------------------------------------------------------------------------------- a call that one rank makes alone


def _verdict_on_only_caller(view: View, only: OnlyCaller, reasons: Mapping[int, Stall]) -> Verdict:
    """The verdict on a rank that waits in what the source keeps from all others."""
    rank, call = only.wait.rank, only.wait.call
    others = names(reasons)
    return hang_verdict(
        view,
        "SL302" if only.bypassed else "SL399",
        _headline_of_only_caller(only, others),
        (rank,) if only.bypassed else (),
        location=call.location,
        call=call,
        because=(
            _why_alone(only, others, several=len(reasons) > 1),
            *(_does(number, reason) for number, reason in sorted(reasons.items())),
            *waiters(view),
        ),
        remedy=OUT_OF_THE_CONDITION if only.condition is not None else f"see why {others} did not make this call",
        confidence="medium" if only.bypassed else "low",
        waiting={rank},
    )


def _headline_of_only_caller(only: OnlyCaller, others: str) -> str:
    rank, call = only.wait.rank, call_at(only.wait.call)
    where = under(only.condition) if only.condition is not None else ""
    if only.bypassed:
        return f"rank {rank} alone makes {call}{where}; {others} went on without it"
    return f"rank {rank} waits in {call}{where}, and {others} did not come: who is wrong is not known"


def _why_alone(only: OnlyCaller, others: str, *, several: bool) -> str:
    if only.condition is None:
        return (
            f"no other rank has ever made this call, and what it stands below cannot be read: {others} may not be late"
        )
    stands = f"it {below(only.condition, only.file)}"
    if only.bypassed:
        return f"{stands}: {others} {'have' if several else 'has'} passed it by"
    return f"{stands}: it may not hold on {others}"


# ------------------------------------------------------------------------------------------- where dumps are left


def _verdict_of_dumps(late: _Late) -> Verdict | None:
    """The verdict on a job of which dumps are left: they do not say why ranks are late."""
    view, culprits, blocked = late.view, late.culprits, late.blocked
    if dumps.doubt(view.case, culprits, blocked):
        return None
    # Those who wait for fewest wait for the culprit itself; others may wait for them as well.
    wait = min(blocked, key=lambda one: (len(one.blockers), one.call.t))
    missed = dumps.missed(blocked, culprits)
    what = _missed_in_dumps(late, wait, at_several=bool(missed))
    return hang_verdict(
        view,
        "SL301",
        f"{what}; {peers_wait({wait.rank for wait in blocked}, len(culprits))}; why, the dumps do not say",
        culprits,
        call=wait.call,
        because=(
            *dumps.last_seen(view.case, culprits),
            *dumps.gaps(view.case, away_of(view.graph.waits) | set(culprits)),
            *missed,
            *waiters(view),
            *dumps.ground(view.case, blocked),
        ),
        remedy="look at what that rank did after its last call: its log, its loader, its GPU"
        if len(culprits) == 1
        else "look at what those ranks did after their last calls: their logs, their loaders, their GPUs",
        confidence=dumps.confidence(view.case, culprits, view.graph, blocked),
        waiting={other.rank for other in blocked},
    )


def _missed_in_dumps(late: _Late, wait: Wait, *, at_several: bool) -> str:
    """`the host of rank 2 never entered all_reduce #12`; `at_several`: not all of them have missed the same call."""
    facts = [late.view.by_rank[rank] for rank in late.culprits]
    what = "did not come to what peers wait in" if at_several else _missed(late.culprits, wait) + of_group(wait.call)
    if all(dumps.unbegun(each, wait) for each in facts):
        what = f"enqueued {label(wait.call)}{of_group(wait.call)}, and the GPU has not begun it"
    who = names(late.culprits)
    if all(map(idle, facts)) and (at_several or not wait.call.is_message):
        who = f"the host{'s' * (len(facts) > 1)} of {who}"
    return f"{who} {what}"


# ------------------------------------------------------------------------------------------------ pieces of both


def _remedy(late: _Late, reason: Stall) -> str:
    """What to do about the first one; what lets all go on that are stopped."""
    if late.code != "SL304" or len(late.culprits) == 1:
        return reason.remedy
    pids = " ".join(str(late.view.by_rank[rank].pid) for rank in late.culprits)
    return f"`kill -CONT {pids}` lets them go on"


def _headline(culprits: tuple[int, ...], reason: Stall, blocked: Sequence[Wait], *, ran_out: bool) -> str:
    """Who does not come, why, and who waits where; of several the reason is that of the first one."""
    who, wait = names(culprits), blocked[0]
    peers = peers_wait({wait.rank for wait in blocked}, len(culprits))
    call = "init_process_group" if wait.call.group == "init" else label(wait.call)
    does = reason.what + in_brackets(reason.location)
    if ran_out:
        return f"{who} ran out of batches, and {peers} in {call}"
    if len(culprits) > 1:
        return f"{who} {_missed(culprits, wait)}; {peers}: rank {culprits[0]} {does}"
    if reason.what == UNSEEN:
        return f"{who} {_missed(culprits, wait)}, and what it does could not be looked at; {peers}"
    return f"{who} {does}, and {peers} in {call}"


def _missed(culprits: tuple[int, ...], wait: Wait) -> str:
    one = len(culprits) == 1
    if wait.call.is_message:
        done = "not sent" if "recv" in wait.call.op else "not received"
        return f"{'has' if one else 'have'} {done} what rank {wait.rank} waits for in {wait.call.op}"
    if wait.call.group == "init":
        return "never called init_process_group"
    if set(culprits) & set(wait.stopped):
        return f"{'is' if one else 'are'} stopped, and {label(wait.call)} cannot end without {'it' if one else 'them'}"
    return f"never entered {label(wait.call)}"


def _confidence(case: Case, culprits: Iterable[int], graph: Graph, sources: tuple[str, ...]) -> Confidence:
    """From the number of independent sources that agree: high needs three, low is what one alone says."""
    named = [facts for facts in case.ranks if facts.rank in set(culprits)]
    agree = set(sources)
    if any(wait.call.thread for wait in graph.waits):
        agree.add("collectives")
    if any(facts.recorded for facts in case.ranks):
        agree.add("Flight Recorder")
    if not all(facts.watched or facts.recorded is not None for facts in named):
        return "low"
    if len(agree) >= 3 and "stack" in agree:
        return "high"
    return "medium" if len(agree) >= 2 else "low"

"""Hangs: ranks wait, and the graph of waits says for whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from safelaunch.diagnosis.blame import uneven_data
from safelaunch.diagnosis.blame.loop_exit import UNEVEN
from safelaunch.diagnosis.blame.rank_guard import Alone, alone
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
from safelaunch.diagnosis.wording import at, below, call_at, is_waiting, label, names, of_group, under
from safelaunch.model import Case, Confidence, Verdict


def never_entered(view: View) -> Verdict | None:
    """Ranks wait in a collective, or for a message, and one rank does not come. It waits for nobody.

    Example:
        error[SL301]: rank 2 sleeps in train_step, and 3 peers wait for it in all_reduce #12

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
    found = view.graph
    ranks = view.by_rank
    sinks = found.sinks if view.from_dumps else found.ends
    if not sinks or any(not alive(ranks[rank]) or ranks[rank].error is not None for rank, _ in found.sinks):
        return None  # a rank that has ended, or has raised, is a matter of other rules
    now = view.now
    reasons = {rank: stall_of(ranks[rank], thread, now, view.case.source) for rank, thread in sinks}
    culprits = tuple(sorted(reasons))
    first = culprits[0]
    reason = reasons[first]
    code, blocked = reason.code, found.waiting_for(culprits)
    # Where all who wait are culprits themselves (all stopped inside one collective), their own waits tell which.
    blocked = blocked or tuple(wait for wait in found.waits if set(culprits) & set(wait.blockers))
    wait = blocked[0]
    if view.from_dumps:
        return _absent(view, culprits, found, blocked)
    if view.from_outside and dumps.doubt(view.case, culprits, blocked):
        return None
    if code == "SL301" and before_init(blocked):
        code = "SL309"
    only = alone(view.case, blocked, culprits) if code == "SL301" and len(culprits) >= len(blocked) else None
    # Of two ranks, one that does not come is late more often than its peer waits where nobody has to come.
    doubt = only is not None and only.condition is None and len(culprits) == 1 and not only.wait.away
    if only is not None and not doubt:
        return _only_one(view, only, reasons)
    left = uneven_data.has_run_out(view.case, culprits) if code == "SL301" else ()
    unread = (f"what rank {wait.rank} stands below cannot be read: it may wait in what it calls alone",)
    code = "SL303" if left else code
    others = tuple(f"rank {rank} {reasons[rank].what}{at(reasons[rank].location)}" for rank in culprits[1:])
    between = {rank: thread for rank, thread in found.sinks if rank not in culprits}
    others += tuple(f"rank {rank} {stall_of(ranks[rank], between[rank], now).what}" for rank in sorted(between))
    return hang_verdict(
        view,
        code,
        _headline(culprits, reason, blocked, ran_out=bool(left)),
        culprits,
        location=reason.location,
        call=wait.call,
        because=(
            *left,
            *((f"rank {first} {reason.what}",) if left else ()),
            *(unread if doubt and not left else ()),
            *reason.because,
            *others,
            *waiters(view),
        ),
        remedy=UNEVEN if left else reason.remedy,
        confidence="low" if doubt and not left else _confidence(view.case, culprits, found, reason.sources),
        waiting={wait.rank for wait in blocked},
    )


def before_init(blocked: Sequence[Wait]) -> bool:
    """A rank has not called `init_process_group`, and its peers wait for it there.

    Example:
        error[SL309]: rank 2 polls for something that does not come, in prepare_data, and 3 peers wait for it in
            init_process_group

    How it was concluded: the peers are inside `init_process_group`, by their own records and stacks, and this rank has
    never begun it. What it does instead comes from its stack and the kernel.

    What to do: look at the named line. Downloads and preparations of data on one rank belong behind the initialisation,
    with a barrier, or before the job.

    What it is not: a wrong MASTER_ADDR or MASTER_PORT. Then all ranks are inside the call, and it does not end (SL310).
    """
    return all(wait.call.group == "init" for wait in blocked)


def _only_one(view: View, only: Alone, reasons: Mapping[int, Stall]) -> Verdict:
    """The verdict of `never_entered` on a rank that waits in what the source keeps from all others."""
    rank, call = only.wait.rank, only.wait.call
    others = names(reasons)
    if only.condition is None:
        why = (
            f"no other rank has ever made this call, and what it stands below cannot be read: {others} may not be late"
        )
    else:
        passed = f"{others} {'has' if len(reasons) == 1 else 'have'} passed it by"
        come = passed if only.passed else f"it may not hold on {others}"
        why = f"it {below(only.condition, only.file)}: {come}"
    return hang_verdict(
        view,
        "SL302" if only.passed else "SL399",
        _headline_of_one(only, others),
        (rank,) if only.passed else (),
        location=call.location,
        call=call,
        because=(
            why,
            *(f"rank {number} {reason.what}{at(reason.location)}" for number, reason in sorted(reasons.items())),
            *waiters(view),
        ),
        remedy="take the collective out of the condition, or let all ranks of the group call it",
        confidence="medium" if only.passed else "low",
        waiting={rank},
    )


def _headline_of_one(only: Alone, others: str) -> str:
    rank, call = only.wait.rank, call_at(only.wait.call)
    where = under(only.condition) if only.condition is not None else ""
    if only.passed:
        return f"rank {rank} alone makes {call}{where}; {others} went on without it"
    return f"rank {rank} waits in {call}{where}, and {others} did not come: who is wrong is not known"


def _absent(view: View, culprits: tuple[int, ...], found: Graph, blocked: tuple[Wait, ...]) -> Verdict | None:
    """The verdict of `never_entered` on a job of which dumps are left."""
    if dumps.doubt(view.case, culprits, blocked):
        return None
    # Those who wait for fewest wait for the culprit itself; others may wait for them as well.
    wait = min(blocked, key=lambda one: (len(one.blockers), one.call.t))
    apart = dumps.missed(blocked, culprits)
    late = [facts for facts in view.case.ranks if facts.rank in culprits]
    what = "did not come to what peers wait in" if apart else _what(culprits, wait) + of_group(wait.call)
    if all(dumps.unbegun(facts, wait) for facts in late):
        what = f"enqueued {label(wait.call)}{of_group(wait.call)}, and the GPU has not begun it"
    who = names(culprits)
    if all(idle(facts) for facts in late) and (apart or not wait.call.is_message):
        who = f"the host{'s' * (len(late) > 1)} of {who}"
    away = away_of(found.waits)
    return hang_verdict(
        view,
        "SL301",
        f"{who} {what}; {_peers(blocked, len(culprits))}; why, the dumps do not say",
        culprits,
        call=wait.call,
        because=(
            *dumps.last_seen(view.case, culprits),
            *dumps.gaps(view.case, away | set(culprits)),
            *apart,
            *waiters(view),
            *dumps.ground(view.case, blocked),
        ),
        remedy="look at what that rank did after its last call: its log, its loader, its GPU"
        if len(culprits) == 1
        else "look at what those ranks did after their last calls: their logs, their loaders, their GPUs",
        confidence=dumps.confidence(view.case, culprits, found, blocked),
        waiting={other.rank for other in blocked},
    )


def hang_untold(view: View) -> Verdict | None:
    """Ranks make no progress, and the evidence does not say why. It is better to say so than to name a victim.

    Example:
        error[SL399]: the ranks make no progress, and the evidence does not say for whom they wait

    How it was concluded: no rule had what it needs. `safelaunch diagnose --why` says what each of them lacked.

    What to do: compare the stacks of all ranks in the evidence folder. Where evidence is missing, the lines say why.

    What it is not: an all-clear. Somebody waits, or nothing moves.
    """
    if view.from_dumps:
        return _untold(view)
    gaps = tuple(f"rank {facts.rank}: {gap}" for facts in view.case.ranks for gap in facts.missing[:1])
    return hang_verdict(
        view,
        "SL399",
        "the ranks make no progress, and the evidence does not say for whom they wait",
        (),
        because=gaps or waiters(view) or ("no rank was found inside a collective",),
        remedy="compare the ranks' stacks in the evidence folder",
        confidence="low",
        waiting={wait.rank for wait in view.graph.waits},
    )


def _untold(view: View) -> Verdict:
    """The verdict of `hang_untold` on a job of which dumps are left."""
    found = view.graph
    missing = {rank for rank, _ in found.sinks}
    alone: tuple[str, ...] = ()
    if missing:
        blocked = found.waiting_for(missing) or found.waits
        wait = blocked[0]
        who = names({other.rank for other in blocked})
        what = f"{label(wait.call)}{of_group(wait.call)}"
        summary = f"{who} came to {what}, and {names(missing)} did not: the dumps do not say who is wrong"
        alone = tuple(filter(None, [dumps.doubt(view.case, missing, blocked)]))
    elif found.waits:
        wait = found.waits[0]
        there = {w.rank for w in found.waits if (w.call.group, w.call.seq) == (wait.call.group, wait.call.seq)}
        what = f"{label(wait.call)}{of_group(wait.call)}"
        told = any(group.name == wait.call.group for group in view.case.groups)
        whom = "for whom" if told else "who else belongs to that group"
        summary = f"{is_waiting(there)} in {what}, and the dumps do not tell {whom}"
    else:
        alone = dumps.behind(view.case)
        summary = alone[0] if alone else "no rank was inside a collective, as far as the dumps show"
        alone = alone[1:]
    return hang_verdict(
        view,
        "SL399",
        summary,
        (),
        location=next((wait.call.location for wait in found.waits), None),
        because=(*alone, *waiters(view), *dumps.gaps(view.case)),
        remedy="the ranks' logs and stacks tell more" if found.waits else "take the dumps while the job hangs",
        confidence="low",
        waiting={wait.rank for wait in found.waits},
    )


def _headline(culprits: tuple[int, ...], reason: Stall, blocked: Sequence[Wait], *, ran_out: bool) -> str:
    """Who does not come, why, and who waits where; of several the reason is that of the first one."""
    who, wait = names(culprits), blocked[0]
    peers = _peers(blocked, len(culprits))
    call = "init_process_group" if wait.call.group == "init" else label(wait.call)
    if ran_out:
        return f"{who} ran out of batches, and {peers} in {call}"
    if len(culprits) > 1:
        return f"{who} {_what(culprits, wait)}; {peers}: rank {culprits[0]} {reason.what}"
    if reason.what == UNSEEN:
        return f"{who} {_what(culprits, wait)}, and what it does could not be looked at; {peers}"
    return f"{who} {reason.what}, and {peers} in {call}"


def _what(culprits: tuple[int, ...], wait: Wait) -> str:
    one = len(culprits) == 1
    if wait.call.is_message:
        done = "not sent" if "recv" in wait.call.op else "not received"
        return f"{'has' if one else 'have'} {done} what rank {wait.rank} waits for in {wait.call.op}"
    if wait.call.group == "init":
        return "never called init_process_group"
    if set(culprits) & set(wait.stopped):
        return f"{'is' if one else 'are'} stopped, and {label(wait.call)} cannot end without {'it' if one else 'them'}"
    return f"never entered {label(wait.call)}"


def _peers(blocked: Sequence[Wait], culprits: int) -> str:
    count = len({wait.rank for wait in blocked})
    whom = "it" if culprits == 1 else "them"
    return f"rank {blocked[0].rank} waits for {whom}" if count == 1 else f"{count} peers wait for {whom}"


def _confidence(case: Case, culprits: Iterable[int], found: Graph, sources: tuple[str, ...]) -> Confidence:
    """From the number of independent sources that agree: high needs three, low is what one alone says."""
    named = [facts for facts in case.ranks if facts.rank in set(culprits)]
    agree = set(sources)
    if any(wait.call.thread for wait in found.waits):
        agree.add("collectives")
    if any(facts.recorded for facts in case.ranks):
        agree.add("Flight Recorder")
    if not all(facts.watched or facts.recorded is not None for facts in named):
        return "low"
    if len(agree) >= 3 and "stack" in agree:
        return "high"
    return "medium" if len(agree) >= 2 else "low"

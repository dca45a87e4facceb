"""Ranks that wait for others outside of collectives: for a lock on a file, a semaphore, at a pipe, on a connection."""

from __future__ import annotations

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.threads import follow, left_running
from safelaunch.diagnosis.wording import call_at, is_waiting, names
from safelaunch.model import RankFacts, SourceLine, Verdict


def held_by_peer(view: View) -> Verdict | None:
    """Ranks wait for a file lock, a named semaphore, at a pipe or on a connection. Another rank has it, or the
    other end, and waits for them.

    How it was concluded: the kernel shows whose process is at the other end of the call that a rank is in. That is a
    rank which itself waits in a collective. A semaphore has no owner: native frames show the wait in posix_ipc, and the
    one rank inside of a `with` of that name is taken to have it. Of a lock the holder is named: it entered a collective
    without giving it back. Of a pipe or a connection nobody is named, but for two cases: an exception has ended a
    thread of the rank at the other end, or such a thread waits for a lock that its main thread has taken into the
    collective. Where a thread there waits for input from the same connection, both sides wait for the other: what was
    asked has not come whole, or was not answered.

    What to do: release locks before every collective, also on the way out of an early return or an exception. Let a
    rank fail whose server thread fails. Flush what is to be answered.
    """
    found = view.graph
    ranks = view.by_rank
    ends = sorted({rank for rank, _ in found.sinks})
    outside = {wait.rank: wait for wait in found.external if wait.resource.kind.has}
    holders = {rank: outside[rank].on if rank in outside else None for rank in ends}
    waits = {wait.rank: wait for wait in found.waits}
    if not all(holder in waits for holder in holders.values()):
        return None
    held = sorted({holder for holder in holders.values() if holder is not None})
    first = waits[held[0]]
    kinds = {outside[rank].resource.kind for rank in ends}
    locks = all(kind.exclusive for kind in kinds)
    lost = None if locks else ranks[held[0]].lost_thread
    called = {outside[rank].resource.called for rank in ends}
    what = called.pop() if len(called) == 1 else " and ".join(sorted({kind.has for kind in kinds}))
    now = view.now
    asker = ranks[ends[0]]
    too = len(ends) == 1 and outside[asker.rank].asked
    shut_out = _shut_out(ranks[held[0]], view.case.source) if not locks and not too else ()
    # Another thread of that rank may be the one that is to answer, and be held up.
    if too and lost is None and len(left_running(ranks[held[0]])) < 2:
        return hang_verdict(
            view,
            "SL311",
            f"rank {asker.rank} and a thread of {names(held)} wait for each other's word on one connection",
            (),
            location=user_frame(asker.stack),
            because=(f"rank {asker.rank} {stall_of(asker, asker.pid, now).what}", *waiters(view)),
            remedy="see whether what was sent is whole and flushed, and whether the other end has an answer to it",
            confidence="medium",
            waiting=(*ends, *waits),
        )
    return hang_verdict(
        view,
        "SL311",
        f"{is_waiting(ends)} for {what}, which {names(held)} {'has' if len(held) == 1 else 'have'}; {is_waiting(held)} "
        f"for {'it' if len(ends) == 1 else 'them'} in {call_at(first.call)}",
        tuple(held) if len(held) == 1 and (locks or lost is not None or shut_out) else (),
        location=lost.location if lost is not None and lost.location is not None else place_of(view, first),
        call=first.call,
        because=(
            *shut_out,
            *(f"rank {rank} {stall_of(ranks[rank], ranks[rank].pid, now).what}" for rank in ends),
            *waiters(view),
        ),
        remedy="release locks before every collective, also where a function returns early"
        if locks
        else "see who is to answer at the other end, and what has become of it",
        confidence="medium",
        waiting=(*ends, *waits),
    )


def _shut_out(facts: RankFacts, source: tuple[SourceLine, ...]) -> tuple[str, ...]:
    """Said where another thread of a rank waits for a lock that its main thread holds."""
    for stack in left_running(facts):
        chain = follow(facts, stack, source)
        if len(chain.lines) == 1 and chain.end is not None and chain.end.thread == facts.pid:
            return chain.lines
    return ()

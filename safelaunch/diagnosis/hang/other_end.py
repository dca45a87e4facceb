"""Ranks that wait for others outside of collectives: for a lock on a file, a semaphore, at a pipe, on a connection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.reasons import stall_of
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.threads import follow, left_running
from safelaunch.diagnosis.waitgraph.wait import ExternalWait
from safelaunch.diagnosis.wording import call_at, is_waiting, names
from safelaunch.model import PyError, RankFacts, SourceLine, Verdict


def peer_has_other_end(view: View) -> Verdict | None:
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
    graph = view.graph
    late = sorted({rank for rank, _ in graph.sinks})
    outside = {wait.rank: wait for wait in graph.external if wait.resource.kind.has}
    at_ends = [outside[rank] for rank in late if rank in outside]
    peers = sorted({wait.on for wait in at_ends if wait.on is not None})
    if len(at_ends) < len(late) or any(wait.on is None for wait in at_ends):
        return None
    if not {*peers} <= {wait.rank for wait in graph.waits}:
        return None
    ends = _Ends(view, at_ends, peers)
    # Another thread of that rank may be the one that is to answer, and be held up.
    if ends.one_is_asked and ends.lost_thread is None and len(left_running(ends.peer)) < 2:
        return _ask_each_other(ends)
    return _verdict(ends)


@dataclass(frozen=True)
class _Ends:
    """The waits outside of collectives for which all chains of waits end, and the peers that have the other ends."""

    view: View
    waits: list[ExternalWait]
    peers: list[int]

    @property
    def late(self) -> list[int]:
        """The ranks that wait so."""
        return [wait.rank for wait in self.waits]

    @property
    def peer(self) -> RankFacts:
        """The first of the peers."""
        return self.view.by_rank[self.peers[0]]

    @cached_property
    def are_locks(self) -> bool:
        return all(wait.resource.kind.exclusive for wait in self.waits)

    @property
    def lost_thread(self) -> PyError | None:
        """The exception that has ended a thread of that peer, which may have been the one to answer."""
        return None if self.are_locks else self.peer.lost_thread

    @property
    def one_is_asked(self) -> bool:
        """Whether a single rank is late, and its peer waits for a word from it on the same connection."""
        return len(self.waits) == 1 and self.waits[0].asked

    @cached_property
    def shut_out(self) -> tuple[str, ...]:
        """Said where a thread of that peer cannot answer, since its main thread has taken a lock along."""
        return () if self.are_locks or self.one_is_asked else _shut_out(self.peer, self.view.case.source)

    @property
    def what(self) -> str:
        """What the ranks wait for."""
        called = {wait.resource.called for wait in self.waits}
        return called.pop() if len(called) == 1 else " and ".join(sorted({w.resource.kind.has for w in self.waits}))

    @property
    def waiting(self) -> tuple[int, ...]:
        return (*self.late, *{wait.rank for wait in self.view.graph.waits})

    def does(self, rank: int) -> str:
        """What a late rank does, in a line."""
        facts = self.view.by_rank[rank]
        return f"rank {rank} {stall_of(facts, facts.pid, self.view.now, self.view.case.source).what}"


def _ask_each_other(ends: _Ends) -> Verdict:
    """The verdict where both sides wait for input from one connection."""
    asker = ends.view.by_rank[ends.late[0]]
    return hang_verdict(
        ends.view,
        "SL311",
        f"rank {asker.rank} and a thread of {names(ends.peers)} wait for each other's word on one connection",
        (),
        location=user_frame(asker.stack),
        because=(ends.does(asker.rank), *waiters(ends.view)),
        remedy="see whether what was sent is whole and flushed, and whether the other end has an answer to it",
        confidence="medium",
        waiting=ends.waiting,
    )


def _verdict(ends: _Ends) -> Verdict:
    view, late, peers, lost = ends.view, ends.late, ends.peers, ends.lost_thread
    wait = next(wait for wait in reversed(view.graph.waits) if wait.rank == peers[0])
    proven = ends.are_locks or lost is not None or bool(ends.shut_out)
    return hang_verdict(
        view,
        "SL311",
        f"{is_waiting(late)} for {ends.what}, which {names(peers)} {'has' if len(peers) == 1 else 'have'}; "
        f"{is_waiting(peers)} for {'it' if len(late) == 1 else 'them'} in {call_at(wait.call)}",
        tuple(peers) if len(peers) == 1 and proven else (),
        location=lost.location if lost is not None and lost.location is not None else place_of(view, wait),
        call=wait.call,
        because=(*ends.shut_out, *map(ends.does, late), *waiters(view)),
        remedy="release locks before every collective, also where a function returns early"
        if ends.are_locks
        else "see who is to answer at the other end, and what has become of it",
        confidence="medium",
        waiting=ends.waiting,
    )


def _shut_out(facts: RankFacts, source: tuple[SourceLine, ...]) -> tuple[str, ...]:
    """Said where another thread of a rank waits for a lock that its main thread holds."""
    for stack in left_running(facts):
        chain = follow(facts, stack, source)
        if len(chain.lines) == 1 and chain.end is not None and chain.end.thread == facts.pid:
            return chain.lines
    return ()

"""Who is at the other end of the call that a rank is in, and which ranks stand at the end of all waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from safelaunch.diagnosis.frames import is_user_code
from safelaunch.diagnosis.waitgraph.calls import stopped
from safelaunch.model import Endpoint, RankFacts

Thread = tuple[int, int]  # rank and thread


def peer_of(facts: RankFacts) -> Endpoint | None:
    """The other end of the call that a rank's main thread is in, where the kernel says anything of it."""
    return facts.kernel.peer if facts.kernel is not None else None


def is_asked(facts: RankFacts) -> bool:
    """Whether whoever is at the other end waits there for this rank's word, as services do between two requests."""
    peer = peer_of(facts)
    return peer is not None and peer.receives


def asks_store(facts: RankFacts) -> bool:
    """Whether a rank waits for an answer of the store: `store.get` and `store.wait` wait until another rank has set the
    key."""
    asks = any(phase.name.startswith("store.") for phase in facts.phases)
    peer = peer_of(facts)
    return (asks or (peer is not None and peer.kind == "store")) and not stopped(facts)


def other_rank(facts: RankFacts, ranks: Iterable[RankFacts]) -> int | None:
    """The rank that alone is at the other end of the call that a rank is in, with its own process or one below it: it
    holds the lock, or has the other end of the pipe."""
    peer = peer_of(facts)
    if peer is None:
        return None
    owners = {pid: each.rank for each in ranks for pid in (each.pid, *(child.pid for child in each.children))}
    found = {owners.get(pid) for pid in peer.pids}
    other = found.pop() if len(found) == 1 else None
    return other if other != facts.rank else None


def last(sinks: tuple[Thread, ...], ranks: Mapping[int, RankFacts], size: int) -> tuple[Thread, ...]:
    """Of the ends of all chains those that wait for no other rank in the store, for a lock or at a pipe; all, where
    every one of them does. A rank of which the kernel has said nothing, at a line of the program itself, may wait for
    another in that way: among such ranks there is no end; nor where nothing is known of the rank at the other end, or
    of whoever waits there for input, too.

    Args:
        sinks: rank and thread at the end of each chain.
        ranks: all that is known of ranks.
        size: how many ranks the job has.
    """
    ends = {rank for rank, _ in sinks}

    def goes_on(facts: RankFacts) -> bool:
        return asks_store(facts) or other_rank(facts, ranks.values()) in ends

    def unseen(facts: RankFacts) -> bool:
        other = other_rank(facts, ranks.values())
        if other is not None:
            return not (ranks[other].stacks or ranks[other].stack or ranks[other].kernel)
        if len(ranks) < size and is_asked(facts):
            return True
        inner = facts.stack.frames[0] if facts.stack is not None and facts.stack.frames else None
        return facts.kernel is None and not facts.phases and inner is not None and is_user_code(inner)

    found = tuple(sink for sink in sinks if not goes_on(ranks[sink[0]])) or sinks
    return () if any(unseen(ranks[rank]) for rank, _ in found) else found

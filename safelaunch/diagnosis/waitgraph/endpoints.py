"""Waits at the other end of something that another rank has: a lock on a file, a pipe, a connection."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Resource
from safelaunch.model import Case, Endpoint, RankFacts
from safelaunch.model.kernel import EndpointKind

FILE_LOCK = Kind("the lock on {}", has="the lock", exclusive=True)
PIPE = Kind("the other end of {}", has="the other end")
CONNECTION = Kind("the other end of a connection to {}", has="the other end")
# The store of torch.distributed is served by the agent: whoever waits there waits for whoever sets the key.
KINDS: dict[EndpointKind, Kind] = {
    "connection": CONNECTION,
    "listener": CONNECTION,
    "unix socket": CONNECTION,
    "pipe": PIPE,
    "FIFO": PIPE,
    "file lock": FILE_LOCK,
}


def peer_of(facts: RankFacts) -> Endpoint | None:
    """The other end of the call that a rank's main thread is in, where the kernel says anything of it."""
    return facts.kernel.peer if facts.kernel is not None else None


def waits(case: Case) -> Iterator[ExternalWait]:
    """The calls in which main threads are, by the kernel. The rank that is waited for alone has the other end, with its
    own process or one below it."""
    owners = {
        (each.node, pid): each.rank
        for each in case.ranks
        for pid in (each.pid, *(child.pid for child in each.children))
    }
    for facts in case.ranks:
        peer = peer_of(facts)
        if peer is None or peer.kind not in KINDS or facts.kernel is None:
            continue
        found = {owners.get((facts.node, pid)) for pid in peer.pids}
        other = found.pop() if len(found) == 1 else None
        yield ExternalWait(
            facts.rank,
            facts.pid,
            Resource(KINDS[peer.kind], peer.address or facts.kernel.file),
            "kernel",
            on=other if other != facts.rank else None,
            asked=peer.receives,
        )

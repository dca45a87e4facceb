"""Waits for keys in the store of torch.distributed."""

from __future__ import annotations

from collections.abc import Iterator

from safelaunch.diagnosis.waitgraph.calls import stopped
from safelaunch.diagnosis.waitgraph.endpoints import peer_of
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Resource
from safelaunch.model import Case

KEY = Kind("the key {} of the store", unnamed="a key of the store", owner="never")


def waits(case: Case) -> Iterator[ExternalWait]:
    """Ranks that wait for an answer of the store: `store.get` and `store.wait` wait until somebody has set the key. Who
    that is, the key does not tell."""
    for facts in case.ranks:
        says = any(phase.name.startswith("store.") for phase in facts.phases)
        peer = peer_of(facts)
        if (says or (peer is not None and peer.kind == "store")) and not stopped(facts):
            keys = Resource(KEY, ", ".join(facts.store_wants))
            yield ExternalWait(facts.rank, facts.pid, keys, "self-report" if says else "kernel")

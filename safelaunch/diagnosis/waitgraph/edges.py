"""The ways in which ranks are seen to wait outside of collectives: each is a function, and a place in this table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from safelaunch.diagnosis.waitgraph import endpoints, flags, semaphores, store, threads
from safelaunch.diagnosis.waitgraph.wait import ExternalWait
from safelaunch.model import Case

EDGES: tuple[Callable[[Case], Iterator[ExternalWait]], ...] = (
    endpoints.waits,
    semaphores.waits,
    store.waits,
    threads.waits,
    flags.waits,
)

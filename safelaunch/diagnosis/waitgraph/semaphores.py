"""Waits for named semaphores, which processes share and which have no owner that the kernel could name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.waitgraph.calls import alive, stack_of
from safelaunch.diagnosis.waitgraph.threads import Lock, held_locks, wanted_locks
from safelaunch.diagnosis.waitgraph.wait import ExternalWait, Kind, Resource
from safelaunch.model import Case, RankFacts

SEMAPHORE = Kind(
    "the named semaphore `{}`", unnamed="a named semaphore", has="the semaphore", exclusive=True, owner="sometimes"
)
# What a line of Python says is the same for a lock of `threading`: the native frames tell. py-spy gives them the name
# of the source where there are symbols (posix_ipc_module.c), else that of the library (posix_ipc.cpython-311-....so).
NATIVE = re.compile(r"(?:^|/)posix_ipc[^/]*$")


def waits(case: Case) -> Iterator[ExternalWait]:
    """Main threads that wait in posix_ipc. The rank that is waited for is alone, on that node, inside of a `with` that
    names the semaphore as the waiting line does; one that calls `acquire` and `release` is not seen to have it."""
    waiting = [(facts, stack) for facts in case.ranks if _in_posix_ipc(facts) and (stack := stack_of(facts, facts.pid))]
    lines = by_place(case.source)
    inside: dict[tuple[int, Lock], set[int]] = {}
    for facts in filter(alive, case.ranks if waiting else ()):
        own = stack_of(facts, facts.pid)
        for lock in held_locks(facts, own, lines, own) if own is not None else ():
            inside.setdefault((facts.node, lock), set()).add(facts.rank)
    for facts, stack in waiting:
        wanted = wanted_locks(facts, stack, lines)
        found, name = (inside.get((facts.node, wanted[0]), set()), wanted[0][1]) if len(wanted) == 1 else (set(), "")
        other = min(found) if len(found) == 1 and facts.rank not in found else None
        yield ExternalWait(facts.rank, facts.pid, Resource(SEMAPHORE, name), "stack", on=other)


def _in_posix_ipc(facts: RankFacts) -> bool:
    """Whether native frames show the main thread there."""
    return any(
        NATIVE.search(frame.file)
        for stack in facts.stacks
        if stack.native and stack.thread == facts.pid
        for frame in stack.frames
    )

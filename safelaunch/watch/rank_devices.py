"""GPUs that ranks tell of: read while they run, and judged where something is wrong with them."""

from __future__ import annotations

import time
from collections.abc import Callable

from safelaunch.model import Finding, RankDevice, WorkerGroup, WorkerProcess
from safelaunch.watch.devices import Namer, judge

SETTLE_S = 1.0  # ranks come one after the other, and what all of them do is told in one line

Stamp = tuple[int, int]


class RankDevices:
    """What the ranks of one run have told of their GPUs, and what follows from it: each finding once.

    Args:
        stamp: changes when a rank has told something new; None before the first time. It costs some microseconds.
        read: what a rank has told last.
        name: the full name of a GPU as CUDA_VISIBLE_DEVICES names it.
        mps: a Multi-Process Service runs.
    """

    def __init__(
        self,
        stamp: Callable[[WorkerProcess], Stamp | None],
        read: Callable[[WorkerProcess], RankDevice | None],
        name: Namer,
        *,
        mps: bool,
    ) -> None:
        self._stamp = stamp
        self._read = read
        self._name = name
        self._mps = mps
        self._stamps: dict[int, Stamp] = {}  # by pid
        self._said: dict[int, RankDevice] = {}
        self._changed_at: float | None = None
        self._told: set[tuple[str, str, str]] = set()

    def poll(self, group: WorkerGroup, *, last: bool = False) -> list[Finding]:
        """What is new, once the ranks have been quiet for a moment; at once where it is the `last` look."""
        for worker in group.workers:
            stamp = self._stamp(worker)
            if stamp is not None and self._stamps.get(worker.pid) != stamp:
                self._stamps[worker.pid] = stamp
                said = self._read(worker)
                if said is not None:
                    self._said[worker.pid] = said
                    self._changed_at = time.monotonic()
        if self._changed_at is None or not (last or time.monotonic() > self._changed_at + SETTLE_S):
            return []
        self._changed_at = None
        ranks = [self._said[worker.pid] for worker in group.workers if worker.pid in self._said]
        found = [f for f in judge(ranks, self._name, mps=self._mps) if _told_as(f) not in self._told]
        self._told |= set(map(_told_as, found))
        return found


def _told_as(finding: Finding) -> tuple[str, str, str]:
    return finding.code, finding.severity, finding.summary

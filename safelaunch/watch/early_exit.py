"""Ranks that wait inside a collective for one that has left with 0. Nothing can release them any more."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from safelaunch import black_box
from safelaunch.model import Incident, WorkerGroup, WorkerProcess

NOTICE_AFTER_S = 3.0  # two looks at the same wait; a rank in a group of the whole world cannot be served any more
ABORT_AFTER_S = 10.0  # grace after an irreversible finding


@dataclass
class EarlyExit:
    """Looks at a group again and again; remembers since when all the living are in the same waits."""

    since: float | None = None
    waits: tuple[tuple[int, int], ...] = ()
    noticed: bool = field(default=False)

    def look(self, group: WorkerGroup, now: float | None = None) -> Incident | None:
        """An incident once every living rank has waited for `ABORT_AFTER_S` in one and the same collective of a
        group that spans the world, and some rank has exited with 0. `now` is CLOCK_MONOTONIC."""
        now = time.monotonic() if now is None else now
        left = [worker for worker in group.workers if worker.exit is not None and worker.exit.code == 0]
        waits = tuple(_wait(worker, group.world_size) for worker in group.alive)
        if not left or not waits or None in waits:
            self.since = None
            return None
        if waits != self.waits or self.since is None:
            self.waits = tuple(wait for wait in waits if wait is not None)
            self.since = now
            self.noticed = False
        if now - self.since < ABORT_AFTER_S:
            return None
        first = min(left, key=lambda worker: worker.exit.t if worker.exit else now)
        assert first.exit is not None
        return Incident("early_exit", group.attempt, tuple(worker.rank for worker in left), first.exit.t)

    def due_notice(self, now: float | None = None) -> bool:
        """Whether it is time to say, once, that ranks wait for one that is gone."""
        now = time.monotonic() if now is None else now
        if self.since is None or self.noticed or now - self.since < NOTICE_AFTER_S:
            return False
        self.noticed = True
        return True


def _wait(worker: WorkerProcess, world_size: int) -> tuple[int, int] | None:
    """(rank, ordinal) of the collective of the whole world that the rank is inside of, or None."""
    if not worker.black_box:
        return None
    try:
        slot = black_box.read(worker.black_box, worker.local_rank)
    except OSError:
        return None
    if slot is None or slot.pid != worker.pid or not slot.entries:
        return None
    last = slot.entries[-1]
    return (worker.rank, last.ordinal) if not last.done and last.group_size == world_size else None

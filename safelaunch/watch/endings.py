"""Ranks that have failed, and whose process goes on: from the exception to a look, to a word, to the end of the run.

A rank whose exception nothing has caught has failed, whatever its process still does; who launched it learns of that
from the end of the process, and the peers wait until then. What programs do at their end may be worth the wait: an
upload, a checkpoint. So a process that is at work is told of and waited for, and one that stands still is not.

Everything here is arithmetic on times that are handed in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from safelaunch.model import Kernel
from safelaunch.watch.hang import LATE_S

LOOK_S = 2.0  # after the exception: a Python with torch ends within 1 s. Each look is compared with the one before
TELL_S = 4.5  # from here on there is a word about it
END_S = 7.5  # ... and the end, where it stands still: both come within 10 s of the exception, on a busy machine too
AGAIN_S = 2.5  # from one look to the next
PAUSE_S = 60.0  # the longest pause of what reads and writes; shorter ones may last as long as it has done so
BUSY_CPU = 0.05  # cores: threads of NCCL and torch wake a few times a second, for 1 % of a core at most
BUSY_IO = 350 << 10  # bytes a second, by read(2) and write(2): a thread that samples /proc stays below. An estimate
BUSY_TCP = 32 << 10  # bytes a second; heartbeats of torch and NCCL are some hundred
BUSY_LIMIT_S = 1800.0  # how long it may be at work: torch's longest timeout

Step = Literal["", "look", "tell", "end"]
Work = Literal["", "computes", "moves"]  # by CPU alone, or by bytes that it reads and writes


@dataclass
class EndWatch:
    """One attempt's ranks that have failed and live on.

    Args:
        ends: whether they are ended at all (not with `--on-hang report`).
        computing_s: for how long CPU alone is work, in seconds: what a rank gets to end when it is asked to, the
            shutdown timeout. Waits for a GPU or a lock may spin. Reading and writing has no limit but `limit_s`.
        limit_s: after so long nothing counts any more.
    """

    ends: bool = True
    computing_s: float = 30.0
    limit_s: float = BUSY_LIMIT_S
    since: dict[int, float] = field(default_factory=dict)
    told: float | None = None
    _worked: float = 0.0
    _moved: float = 0.0
    _floor: float = 0.0
    _polled: float | None = None
    _looked: float = 0.0

    def poll(self, failed: Collection[int], now: float) -> Step:
        """One round. `failed` are the living ranks that have failed; `now` is CLOCK_MONOTONIC."""
        if self._polled is not None and now - self._polled > LATE_S:
            self._floor = now  # we did not run, and perhaps they did not
        self._polled = now
        self.since = {rank: self.since.get(rank, now) for rank in failed}
        if not self.since:
            self.told = None
            return ""
        step = self._step(now)
        if step:
            self._looked = now
        return step

    def _step(self, now: float) -> Step:
        if self._looked < self.begun:
            return "look" if now >= self.begun + LOOK_S else ""
        if self.told is None and now >= self.begun + TELL_S:
            return "tell"
        pause = min(max(END_S - LOOK_S, self._moved - self.begun), PAUSE_S)
        idle = now - max(self.begun, self._worked) >= pause or now - self.first >= self.limit_s
        if self.ends and self.told is not None and idle and now >= self.begun + END_S:
            return "end"
        return "look" if now >= self._looked + max(AGAIN_S, pause / 4) else ""

    @property
    def begun(self) -> float:
        """When the clock began to run: at the latest of the failures, and not while we did not run."""
        return max(self._floor, *self.since.values())

    @property
    def first(self) -> float:
        """When the first of them was seen to have failed."""
        return min(self.since.values())

    def looked(self, kernels: Collection[Kernel | None], waits: bool, now: float, carried: float = 0.0) -> Work:
        """Take in a look; what the processes have been at since the one before.

        Args:
            kernels: of the ranks that have failed.
            waits: whether what keeps them is a wait for peers or a GPU, by their stacks: it may spin.
            now: CLOCK_MONOTONIC.
            carried: by their TCP connections, in bytes a second.
        """
        over = now - self.first >= self.limit_s
        works = {_work(kernel) for kernel in kernels if kernel is not None and not over}
        if carried > BUSY_TCP and not over:
            works.add("moves")
        allowed = not waits and now - self.first < self.computing_s
        work: Work = "moves" if "moves" in works else "computes" if "computes" in works and allowed else ""
        if work:
            self._worked = now
        if work == "moves":
            self._moved = now
        self._polled = now  # a look takes its time, and that is not time in which we did not run
        return work

    def pause(self, now: float) -> None:
        """Nothing before this moment counts: a person is at the keyboard."""
        self._floor = self._polled = now


def _work(kernel: Kernel) -> Work:
    seconds = kernel.since_s or 0.0
    if seconds <= 0:
        return ""
    if (kernel.io_bytes or 0) > BUSY_IO * seconds:
        return "moves"
    return "computes" if (kernel.cpu_s or 0.0) > BUSY_CPU * seconds else ""

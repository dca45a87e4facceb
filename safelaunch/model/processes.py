"""The processes of a run: a launch needs no more of the model before it has started them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exit:
    """How a process ended. `code` is as `subprocess` reports it: negative for a signal. `t` is CLOCK_MONOTONIC."""

    code: int
    t: float


@dataclass(frozen=True)
class WorkerProcess:
    """One rank's process as the agent started it. `start` is /proc's start time in ticks; `rank_dir` is where the
    worker writes what it knows of its own end, `black_box` the file that holds its slot (empty: none), `logs` the files
    of its stderr and its stdout (empty: they are the launcher's own). `owner` is the user of a process that we did not
    start, whose files alone are read; None for ours. `since` is CLOCK_MONOTONIC
    at which it came to this job from another one, 0 where it has been in no other."""

    rank: int
    local_rank: int
    pid: int
    start: int
    rank_dir: str
    black_box: str = ""
    exit: Exit | None = None
    logs: tuple[str, ...] = ()
    owner: int | None = None
    since: float = 0.0


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of one attempt on this node. `joined` says that somebody else has started them, and that others may
    be here that are not known yet."""

    attempt: int
    world_size: int
    local_world_size: int
    workers: tuple[WorkerProcess, ...] = ()
    joined: bool = False

    @property
    def alive(self) -> tuple[WorkerProcess, ...]:
        return tuple(worker for worker in self.workers if worker.exit is None)

    @property
    def started(self) -> bool:
        """Whether all workers of this node have been started."""
        return len(self.workers) == self.local_world_size

    @property
    def left(self) -> int:
        """How many workers have not ended, those included that have yet to be started."""
        return self.local_world_size - len(self.workers) + len(self.alive)


@dataclass(frozen=True)
class Preempted:
    """The run was asked to stop at a step: `by` what, and when (seconds since the epoch). `call` of `should_stop()` was
    the first that returned True to a rank of this node; None where the deadline came before it. `stopped` is false
    where the ranks had to be ended at that deadline."""

    by: str
    asked: float
    call: int | None
    stopped: bool
    exit_code: int


@dataclass(frozen=True)
class ColdStart:
    """The script `changed` something, such as "sets OMP_NUM_THREADS", before `file`:`line` imports `module`. The rank
    has started again by itself, or why not is in `too_late`."""

    changed: str
    module: str
    file: str
    line: int
    too_late: str

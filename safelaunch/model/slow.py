"""What is known of a run that is slow: who is late, since when, and what its processes and the node do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safelaunch.model.diagnostic import Location

Slow = Literal["straggler", "slower", "below", "loader"]


@dataclass(frozen=True)
class Pace:
    """How one rank spends its time.

    `own_s` is its own time for each step, from the moment when a meeting lets it go to the moment when it comes to the
    next one, and `peers_s` the median of those that it meets; None where the meetings are not seen. It was late in
    `late` of `of` looks. `loading` and `waiting` are the shares of the time that its main thread spends in its loader
    and in collectives that Python calls; `_before` is before the slowness began. `workers` are those of its loader, -1
    where it has none.
    """

    rank: int
    own_s: float | None = None
    peers_s: float | None = None
    late: int = 0
    of: int = 0
    loading: float | None = None
    waiting: float | None = None
    loading_before: float | None = None
    waiting_before: float | None = None
    workers: int = -1


@dataclass(frozen=True)
class DevicePace:
    """What the GPU of one rank does in a step, in seconds, by events in its stream.

    `own_s` is its own time, from the moment when it is through with one call to the moment when it comes to the next
    one, and `host_s` that part of it in which its host had not yet enqueued all that comes before that call; `call_s`
    is the time in calls, waits for others included. `mixed` says that this holds work of its own as well: the backward
    passes of DDP, in which calls are made, or what runs beside them. `even_s` is `own_s` without the longest time of
    every second step.
    """

    rank: int
    own_s: float
    host_s: float
    call_s: float
    mixed: bool = False
    even_s: float | None = None


@dataclass(frozen=True)
class Usage:
    """What the process of one rank used between two looks at /proc; rates are per second of wall time.

    `cpu` is in cores, `beside` what of it other threads than the main one used, `queued` the time that its threads
    could have run and had no CPU, in all. `preempted` counts involuntary switches of its main thread, `faults` pages
    that had to be read from a disk. `cpus` are those that it may use. None: /proc does not say.
    """

    rank: int
    seconds: float
    cpu: float = 0.0
    queued: float | None = None
    preempted: float | None = None
    faults: float = 0.0
    read_bytes: float | None = None
    swapped_bytes: int = 0
    cpus: tuple[int, ...] = ()
    beside: float | None = None


@dataclass(frozen=True)
class Busy:
    """A process that takes CPU time: one that does not belong to the run, or one below the rank `of`. `cpus` are those
    that it may use."""

    pid: int
    name: str
    cores: float
    cpus: tuple[int, ...] = ()
    of: int | None = None


@dataclass(frozen=True)
class NodeUsage:
    """What the node did between two looks. `busy` is the share of all CPU time that somebody used; `throttled` the
    share of time in which the cgroup's CPU limit held processes back; `memory_pressure` and `io_pressure` the share in
    which somebody waited (PSI, `some`). None: the kernel does not say."""

    seconds: float
    cpus: int = 0
    busy: float | None = None
    throttled: float | None = None
    memory_pressure: float | None = None
    io_pressure: float | None = None


@dataclass(frozen=True)
class Standing:
    """Where a process of a rank mostly stands: `times` of `of` looks at its stack at this line of the user's program
    (None: at no one line), `inside` of them in a collective, a loader or a backward pass; `running` on a CPU, `held` in
    uninterruptible sleep. `worker` says that it is a worker of its loader, and `inside` then, that it had nothing to
    do. `call` and `file` are the system call that it was mostly in, and what that is about. `others` is how many other
    threads of it were seen to run Python code of the user's, `beside` the line at which they did most often, `taken` in
    how many looks at least one of them did."""

    rank: int
    location: Location | None = None
    times: int = 0
    of: int = 0
    inside: int = 0
    running: int = 0
    held: int = 0
    worker: bool = False
    call: str = ""
    file: str = ""
    others: int = 0
    beside: Location | None = None
    taken: int = 0


@dataclass(frozen=True)
class Stalled:
    """A rank that stops for a moment again and again: `count` times, together for `seconds`, at most for `longest` each
    time, in a time of `over` seconds."""

    rank: int
    count: int
    seconds: float
    longest: float
    over: float

    @property
    def share(self) -> float:
        """Of the time."""
        return self.seconds / self.over if self.over else 0.0


@dataclass(frozen=True)
class RanksOfNode:
    """The ranks of a node, and those of them that come last. `usage` is what the node did meanwhile."""

    host: str
    ranks: tuple[int, ...]
    late: tuple[int, ...] = ()
    usage: NodeUsage | None = None


@dataclass(frozen=True)
class SlowLink:
    """A node whose collectives last longer than those of others, from the moment when all ranks have come: the median
    of those in which it takes part and of those in which it does not, in seconds."""

    host: str
    with_s: float
    without_s: float


@dataclass(frozen=True)
class Slowness:
    """A run that is slow, as the watch saw it and the node explains it.

    `unit` is what is counted: `step` (of an optimizer, or as the script says), `batch` or `collective`. `since` is the
    number at which it began and `begun` when (CLOCK_MONOTONIC; None: it has been so all along), `at` the number of now.
    `now_s` is the median time of a unit, `usual_s` what it was before, `expect_s` what the profile expects. `source`
    says how lateness was seen: `calls` (the ranks' own record), `recorder` (the Flight Recorder, which knows what C++
    calls), `device` (events in the streams of GPUs) or `loader` (time in loaders); `unknown` why it could not be seen.
    `grows`: it came bit by bit, and `usual_s`
    is what it was at first. `on_device` says that calls end on GPUs, where the times of hosts say little; `devices` is
    what those do, and `devices_before` what they did before it began, where that was looked at. `stalled` says that the
    rank is late only now and then, and how often. `children` are processes below ranks that take CPU time.
    `nodes` are those whose ranks were compared, where these are all nodes of the job (empty: this one's alone were).
    `link` is the one whose collectives last longer than those of others.
    """

    kind: Slow
    ranks: tuple[int, ...] = ()
    unit: str = "step"
    since: int | None = None
    begun: float | None = None
    at: int = 0
    now_s: float | None = None
    usual_s: float | None = None
    expect_s: float | None = None
    source: str = ""
    unknown: str = ""
    paces: tuple[Pace, ...] = ()
    usage: tuple[Usage, ...] = ()
    usage_before: tuple[Usage, ...] = ()
    node: NodeUsage | None = None
    node_before: NodeUsage | None = None
    others: tuple[Busy, ...] = ()
    standing: tuple[Standing, ...] = ()
    grows: bool = False
    on_device: bool = False
    devices: tuple[DevicePace, ...] = ()
    devices_before: tuple[DevicePace, ...] = ()
    stalled: Stalled | None = None
    children: tuple[Busy, ...] = ()
    nodes: tuple[RanksOfNode, ...] = ()
    link: SlowLink | None = None

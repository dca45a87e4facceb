"""Evidence: what can be known of each rank, taken before anything is killed.

A collector is `collect(incident, worker, deadline) -> Evidence`; `deadline` is CLOCK_MONOTONIC. It never raises,
never outlives its deadline and never waits for a process that the kernel holds.
"""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.evidence import (
    black_box,
    devices,
    errors,
    faults,
    flight_recorder,
    groups,
    kernel,
    last_lines,
    native,
    self_report,
    sockets,
    stacks,
)
from safelaunch.model import Evidence, Incident, WorkerProcess

Collector = Callable[[Incident, WorkerProcess, float], Evidence]

# What will not wait: peers of a dead rank end within milliseconds. In the order that disturbs least.
URGENT: tuple[Collector, ...] = (kernel.collect, stacks.collect)

# What ranks leave on disk and in memory that outlives them.
LASTING: tuple[Collector, ...] = (
    errors.collect,
    faults.collect,
    black_box.collect,
    groups.collect,
    devices.collect,
    last_lines.collect,
)

# What the living say when they are asked; the second reads what the first has asked for.
ASKED: tuple[Collector, ...] = (flight_recorder.collect, self_report.collect)

# One look at ranks that seem to hang; it leaves them as they are, unless py-spy may not read them. Stacks come last: on
# a busy machine they take longest, and what is quick must not be lost for them.
LOOK: tuple[Collector, ...] = (
    kernel.collect,
    black_box.collect,
    groups.collect,
    *ASKED,
    stacks.collect,
)

# The same of ranks that have ended: what they leave in memory that outlives them.
LEFT: tuple[Collector, ...] = (black_box.collect, groups.collect)

# What a hang still needs once it is certain: `native` stops ranks for a moment.
HANG_LAST: tuple[Collector, ...] = (native.collect, errors.collect, faults.collect, devices.collect, last_lines.collect)

# Of all ranks of a run that is slow; stacks are taken of some of them only.
SLOW: tuple[Collector, ...] = (kernel.collect, black_box.collect, groups.collect, devices.collect)

# Of a rank that has failed, and whose process goes on.
LIVES_ON: tuple[Collector, ...] = (*LASTING, sockets.collect, *URGENT)

COLLECTORS: tuple[Collector, ...] = tuple(dict.fromkeys(URGENT + LASTING + LOOK + HANG_LAST + LIVES_ON))

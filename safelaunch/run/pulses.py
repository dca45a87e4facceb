"""A look at the pulses of ranks."""

from __future__ import annotations

from collections.abc import Iterable

from safelaunch import black_box_reader
from safelaunch.model import WorkerProcess
from safelaunch.pulse import Pulse


def pulses_of(reader: black_box_reader.Reader | None, workers: Iterable[WorkerProcess]) -> dict[int, Pulse]:
    """The pulses of workers, by rank, of those that have one; none where there is no black box."""
    if reader is None:
        return {}
    looks = ((worker.rank, reader.pulse(worker.local_rank, worker.pid)) for worker in workers)
    return {rank: pulse for rank, pulse in looks if pulse is not None}

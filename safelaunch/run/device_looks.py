"""Has the GPUs of all ranks followed for some seconds, and takes in what was seen."""

from __future__ import annotations

import threading

from safelaunch import black_box_reader
from safelaunch.evidence import device_times
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.watch.device_times import Look, Mark

LATE_S = 5.0  # above the time itself: a beat thread looks five times a second, on a busy machine less often


class DeviceLooks:
    """One look at the GPUs of all ranks: all of them, or none, since one that is missing may be the slow one.

    Args:
        group: the ranks.
        reader: of their black box.
        seconds: for how long.
        every_s: seconds between two looks at one GPU.
        now: CLOCK_MONOTONIC.
    """

    def __init__(
        self, group: WorkerGroup, reader: black_box_reader.Reader, seconds: float, every_s: float, now: float
    ) -> None:
        self.looks: dict[int, Look] = {}
        self.missing = ""
        self.done = False
        self._reader = reader
        self._until = now + seconds + LATE_S
        self._waiting: list[tuple[WorkerProcess, int]] = []
        self._workers = list(group.alive)
        for worker in self._workers:
            pulse = reader.pulse(worker.local_rank, worker.pid)
            if pulse is not None:
                reader.follow(worker.local_rank, seconds, every_s)
                self._waiting.append((worker, pulse.follow_asked + 1))

    def poll(self, now: float) -> bool:
        """Whether all have answered, or one has not in time."""
        if self._waiting:
            self._waiting = [
                (worker, asked) for worker, asked in self._waiting if not self._has_answered(worker, asked)
            ]
            if not self._waiting:
                threading.Thread(target=self._read, daemon=True).start()
            elif now > self._until:
                ranks = ", ".join(str(worker.rank) for worker, _ in self._waiting)
                self._waiting, self.missing, self.done = [], f"the GPU of rank {ranks} could not be followed", True
        return self.done

    def _has_answered(self, worker: WorkerProcess, asked: int) -> bool:
        pulse = self._reader.pulse(worker.local_rank, worker.pid)
        return pulse is not None and pulse.followed >= asked

    def _read(self) -> None:
        found = {}
        try:
            for worker in self._workers:
                seen = device_times.read(worker)
                found[worker.rank] = Look(seen.begun, seen.ended, [Mark(*mark) for mark in seen.marks], seen.missing)
            self.looks = found
        except Exception as error:
            self.missing = f"what was seen of a GPU could not be read: {error}"
        self.done = True

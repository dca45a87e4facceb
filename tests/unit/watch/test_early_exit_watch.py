"""A rank has left with 0 and the others wait: told after a while, an incident later, and never by mistake.

The clock is the test's; the black box is a real file, written as ranks write it.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from safelaunch import black_box
from safelaunch.model import Exit, WorkerGroup, WorkerProcess
from safelaunch.watch.early_exit import ABORT_AFTER_S, NOTICE_AFTER_S, EarlyExit

WORLD = 3


class Job:
    """Three ranks with their slots; rank 1 has left with 0."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "box")
        black_box.create(self.path, WORLD)
        self.writers = [black_box.Writer(self.path, rank) for rank in range(WORLD)]
        workers = tuple(WorkerProcess(rank, rank, os.getpid(), 0, "", self.path) for rank in range(WORLD))
        self.group = WorkerGroup(2, WORLD, WORLD, workers)
        self.exit(1, 0)

    def exit(self, rank: int, code: int) -> None:
        workers = tuple(
            dataclasses.replace(w, exit=Exit(code, 99.0)) if w.rank == rank else w for w in self.group.workers
        )
        self.group = dataclasses.replace(self.group, workers=workers)

    def enter(self, rank: int, seq: int = 5, size: int = WORLD) -> int:
        return self.writers[rank].enter("all_reduce", "0", size, seq, 10, "float32", "a.py", 1, "main")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def waiting(job: Job) -> Job:
    job.enter(0)
    job.enter(2)
    return job


def test_a_notice_and_then_an_incident(waiting: Job) -> None:
    watch = EarlyExit()
    assert watch.look(waiting.group, 100.0) is None
    assert not watch.due_notice(100.0 + NOTICE_AFTER_S - 0.1)
    assert watch.due_notice(100.0 + NOTICE_AFTER_S)
    assert not watch.due_notice(100.0 + NOTICE_AFTER_S + 1)  # once
    assert watch.look(waiting.group, 100.0 + ABORT_AFTER_S - 0.1) is None

    incident = watch.look(waiting.group, 100.0 + ABORT_AFTER_S)
    assert incident is not None
    assert (incident.kind, incident.attempt, incident.ranks, incident.t) == ("early_exit", 2, (1,), 99.0)


def test_any_progress_starts_the_clock_again(waiting: Job) -> None:
    watch = EarlyExit()
    watch.look(waiting.group, 100.0)
    assert watch.due_notice(105.0)
    waiting.enter(0, seq=6)

    assert watch.look(waiting.group, 109.0) is None
    assert watch.look(waiting.group, 100.0 + ABORT_AFTER_S) is None
    assert not watch.due_notice(109.0 + NOTICE_AFTER_S - 0.1)
    assert watch.due_notice(109.0 + NOTICE_AFTER_S)  # the new wait is told too
    assert watch.look(waiting.group, 109.0 + ABORT_AFTER_S) is not None


def never(job: Job) -> bool:
    watch = EarlyExit()
    return all(watch.look(job.group, 100.0 + t) is None and not watch.due_notice(100.0 + t) for t in range(0, 600, 5))


def test_a_rank_that_computes_is_not_waiting(job: Job) -> None:
    job.enter(0)
    job.writers[2].leave(job.enter(2))
    assert never(job)


def test_a_rank_that_never_entered_a_collective_is_not_waiting(job: Job) -> None:
    job.enter(0)
    assert never(job)


def test_a_collective_of_a_smaller_group_may_still_end(job: Job) -> None:
    job.enter(0, size=2)
    job.enter(2, size=2)
    assert never(job)


def test_nobody_has_left(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.group = dataclasses.replace(
        job.group, workers=tuple(dataclasses.replace(worker, exit=None) for worker in job.group.workers)
    )
    for rank in range(WORLD):
        job.enter(rank)
    assert never(job)


def test_a_rank_that_failed_is_not_an_early_exit(waiting: Job) -> None:
    waiting.exit(1, 1)
    assert never(waiting)


def test_all_have_left(job: Job) -> None:
    for rank in range(WORLD):
        job.exit(rank, 0)
    assert never(job)


def test_the_slot_of_an_earlier_attempt_proves_nothing(waiting: Job) -> None:
    workers = tuple(dataclasses.replace(worker, pid=worker.pid + 1) for worker in waiting.group.workers)
    waiting.group = dataclasses.replace(waiting.group, workers=workers)
    assert never(waiting)


@pytest.mark.parametrize("path", ["", "/nowhere/box"])
def test_without_a_black_box_nothing_is_concluded(waiting: Job, path: str) -> None:
    workers = tuple(dataclasses.replace(worker, black_box=path) for worker in waiting.group.workers)
    waiting.group = dataclasses.replace(waiting.group, workers=workers)
    assert never(waiting)


def test_all_who_left_are_named(waiting: Job) -> None:
    waiting.exit(2, 0)
    watch = EarlyExit()
    watch.look(waiting.group, 100.0)

    incident = watch.look(waiting.group, 100.0 + ABORT_AFTER_S)
    assert incident is not None
    assert incident.ranks == (1, 2)


def test_a_slot_that_cannot_be_understood_stops_no_watching(waiting: Job) -> None:
    waiting.writers[0].exit_call("/" + "d/" * 600 + "train.py", 3, "main", 2)
    EarlyExit().look(waiting.group, 100.0)

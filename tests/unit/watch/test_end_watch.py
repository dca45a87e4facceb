"""The decisions about ranks that have failed and live on: told early, ended where they do no work, waited for else."""

from __future__ import annotations

import pytest

from safelaunch.model import Kernel
from safelaunch.watch.endings import BUSY_CPU, BUSY_IO, BUSY_LIMIT_S, PAUSE_S, EndWatch, Work

ROUND_S = 0.25
IDLE = Kernel("S", cpu_s=0.02, io_bytes=20_000, since_s=2.5)
COMPUTES = Kernel("R", cpu_s=2.5, io_bytes=0, since_s=2.5)
MOVES = Kernel("S", cpu_s=0.0, io_bytes=10 << 20, since_s=2.5)


class Run:
    """A rank that fails at 0, and lives on. `kernel` is what each look finds."""

    def __init__(self, watch: EndWatch | None = None, kernel: Kernel = IDLE, *, waits: bool = False) -> None:
        self.watch = watch or EndWatch()
        self.kernel, self.waits = kernel, waits
        self.now = 1000.0
        self.work: Work = ""

    def go(self, seconds: float) -> list[tuple[str, float]]:
        """What is done, and how long after the exception. The end is an end only where a last look finds no work."""
        found: list[tuple[str, float]] = []
        until = self.now + seconds
        while self.now < until:
            step = self.watch.poll({1}, self.now)
            if step:
                self.work = self.watch.looked([self.kernel], self.waits, self.now)
            if step == "tell":
                self.watch.told = self.now
            if step in ("tell", "end") and not (step == "end" and self.work):
                found.append((step, self.now - 1000.0))
            if step == "end" and not self.work:
                return found
            self.now += ROUND_S
        return found


def test_what_does_no_work_is_told_and_ended_within_ten_seconds() -> None:
    (told, at), (ended, end) = Run().go(60)

    assert (told, ended) == ("tell", "end")
    assert at < end <= 9.0  # the evidence takes its time, too


def test_a_process_that_ends_in_time_is_no_matter() -> None:
    run = Run()
    assert run.go(2.0) == []

    assert run.watch.poll((), run.now) == ""
    assert not run.watch.since


def test_reading_and_writing_is_waited_for_until_it_stops() -> None:
    run = Run(kernel=MOVES)
    assert [step for step, _ in run.go(600)] == ["tell"]

    run.kernel = IDLE
    (step, at) = run.go(120)[0]
    assert step == "end"
    assert 600 + PAUSE_S - 20 <= at <= 600 + PAUSE_S + 5


def test_a_pause_may_last_as_long_as_the_work_before() -> None:
    run = Run(kernel=MOVES)
    run.go(20)
    run.kernel = IDLE
    run.go(10)
    run.kernel = MOVES

    assert run.go(20) == []


def test_nothing_is_waited_for_without_a_limit() -> None:
    run = Run(kernel=MOVES)

    assert [step for step, _ in run.go(BUSY_LIMIT_S)] == ["tell"]
    run.kernel = IDLE
    assert run.go(120)


@pytest.mark.parametrize("limit", [60.0, BUSY_LIMIT_S])
def test_the_limit_ends_what_is_at_work_as_well(limit: float) -> None:
    run = Run(EndWatch(limit_s=limit), MOVES)
    steps = run.go(limit + 30)

    assert [step for step, _ in steps] == ["tell", "end"]
    assert limit <= steps[1][1] <= limit + 5


def test_computing_counts_for_the_shutdown_timeout() -> None:
    steps = Run(EndWatch(computing_s=30.0), COMPUTES).go(120)

    assert [step for step, _ in steps] == ["tell", "end"]
    assert 30 <= steps[1][1] <= 40


def test_a_wait_for_a_gpu_that_spins_is_no_work() -> None:
    steps = Run(kernel=COMPUTES, waits=True).go(60)

    assert steps[1][0] == "end"
    assert steps[1][1] <= 9.0


def test_report_tells_and_ends_nothing() -> None:
    assert [step for step, _ in Run(EndWatch(ends=False)).go(4000)] == ["tell"]


def test_the_time_in_which_we_did_not_run_counts_for_nobody() -> None:
    run = Run()
    run.go(1.0)
    run.now += 600.0  # a laptop that was closed

    assert run.go(1.5) == []


def test_a_person_at_a_debugger_has_all_the_time() -> None:
    run = Run()
    for _ in range(200):
        assert run.go(3.0) == []
        run.watch.pause(run.now)


def test_another_rank_that_fails_gets_its_own_time() -> None:
    run = Run()
    run.go(6.0)
    assert run.watch.poll({1, 2}, run.now) == ""
    assert run.watch.begun == run.now


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_the_thresholds_are_rates(share: float) -> None:
    watch = EndWatch()
    watch.poll({0}, 0.0)

    assert bool(watch.looked([Kernel("S", io_bytes=int(BUSY_IO * 5 * share), since_s=5.0)], False, 5.0)) == (share > 1)
    assert bool(watch.looked([Kernel("S", cpu_s=BUSY_CPU * 5 * share, since_s=5.0)], False, 5.0)) == (share > 1)
    assert not watch.looked([Kernel("S")], False, 5.0)

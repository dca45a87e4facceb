"""Ranks make no progress and nobody knows for whom they wait: told late, and ended only by a limit of the user's."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from clock import ALL_INSIDE, LATE, UNTOLD, Run, names, waiting_run, when

from safelaunch.model import Kernel, Location, Stack
from safelaunch.watch.hang import MAKING_S, NETWORK_S, NOTICE_S, UNTOLD_S, HangWatch

HOUR = 3600.0


def all_waiting(**watch: object) -> Run:
    run = Run(HangWatch(**watch), UNTOLD)  # type: ignore[arg-type]
    run.wait(*run.pulses)
    return run


def test_it_is_looked_at_less_and_less_often() -> None:
    events = waiting_run(verdict=UNTOLD).go(300)

    assert set(names(events)) == {"look"}
    looks = when(events, "look")
    assert len(looks) <= 8
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert gaps == sorted(gaps)


def test_it_is_told_once_the_evidence_is_there() -> None:
    run = waiting_run(verdict=UNTOLD)
    run.go(20)
    run.verdict = LATE

    assert names(run.go(40))[-1] == "notice"


def test_a_rank_that_does_something_else_may_be_all_that_the_others_need() -> None:
    assert set(names(waiting_run(verdict=UNTOLD, abort_after=60.0).go(HOUR))) == {"look"}


def asleep(**kernel: object) -> dict[str, object]:
    """What two looks find of a rank that sleeps at one line."""
    stack = Stack((Location("train.py", 55, "main"),), "test")
    seen = Kernel("S", syscall="clock_nanosleep", cpu_s=0.0, io_bytes=0, since_s=5.0)
    return {"stack": stack, "earlier": stack, "kernel": dataclasses.replace(seen, **kernel)}  # type: ignore[arg-type]


def test_that_the_one_who_does_not_wait_does_nothing_either_is_told_in_the_end() -> None:
    run = waiting_run(verdict=UNTOLD, abort_after=120.0)
    run.seen[3] = asleep()
    events = run.go(HOUR)

    assert UNTOLD_S <= when(events, "notice")[0] <= 2 * UNTOLD_S + 10
    assert when(events, "abort")[0] == 120.0


@pytest.mark.parametrize("kernel", [{"cpu_s": 4.0}, {"io_bytes": 1 << 30}, {"syscall": "recvfrom"}])
def test_one_that_is_at_work_or_asked_from_outside_is_left_alone(kernel: dict[str, object]) -> None:
    run = waiting_run(verdict=UNTOLD, abort_after=60.0)
    run.seen[3] = asleep(**kernel)

    assert set(names(run.go(HOUR))) == {"look"}


def test_that_everybody_waits_is_told_in_the_end() -> None:
    events = all_waiting().go(HOUR)

    assert when(events, "notice") == [UNTOLD_S]
    assert "abort" not in names(events)
    assert len(when(events, "look")) <= 6


def test_a_name_that_is_found_meanwhile_is_told_at_its_own_time() -> None:
    run = all_waiting()
    run.go(NOTICE_S + 1)
    run.verdict = LATE

    assert when(run.go(UNTOLD_S), "notice")[0] < UNTOLD_S


def test_a_limit_ends_it_and_is_announced() -> None:
    events = all_waiting(abort_after=20.0).go(20)

    assert when(events, "notice") == [10.0]
    assert when(events, "abort") == [20.0]


@pytest.mark.parametrize(("elsewhere", "at"), [(0, NOTICE_S), (4, NETWORK_S)])
def test_a_network_has_time_to_try_again(elsewhere: int, at: float) -> None:
    """All have entered, so nobody can be named: between nodes TCP may be repeating what was lost."""
    run = Run(HangWatch(), ALL_INSIDE, elsewhere=elsewhere)
    run.wait(*run.pulses)
    assert when(run.go(60), "notice")[0] == pytest.approx(at, abs=1.0)


def test_ranks_have_time_to_make_a_group() -> None:
    """CUDA contexts and NCCL's connections of many GPUs take their time, and nobody is late."""
    run = Run(HangWatch(), dataclasses.replace(ALL_INSIDE, operation="init_process_group"))
    run.wait(*run.pulses)
    assert when(run.go(60), "notice")[0] == pytest.approx(MAKING_S, abs=1.0)


def test_a_name_between_nodes_is_told_at_its_own_time() -> None:
    run = Run(HangWatch(), LATE, elsewhere=4)
    run.wait(0, 1, 2)
    assert when(run.go(60), "notice")[0] == pytest.approx(NOTICE_S, abs=1.0)


def test_a_limit_is_announced_before_the_network_has_had_its_time() -> None:
    run = Run(HangWatch(abort_after=10.0), ALL_INSIDE, elsewhere=4)
    run.wait(*run.pulses)
    events = run.go(60)
    assert when(events, "notice")[0] < when(events, "abort")[0] == 10.0

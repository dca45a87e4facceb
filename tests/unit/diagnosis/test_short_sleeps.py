"""A rank that sleeps again and again for a short time, and is no stall as long as its loop may end by itself."""

from __future__ import annotations

import dataclasses

import pytest
from hang_scenes import call, condition, elsewhere, hang, waiting
from scenes import STEP

from safelaunch.diagnosis import diagnose
from safelaunch.diagnosis.stall.short_sleeps import sleep_shortly
from safelaunch.model import Case, Kernel, SourceLine

IN_FOR = SourceLine(STEP.file, STEP.line, "time.sleep(0.1)", loops=((80, 90),))
IN_WHILE = dataclasses.replace(IN_FOR, conditions=(condition(80, "not ready()"),))
FOR_IN_WHILE = dataclasses.replace(IN_WHILE, loops=((80, 90), (86, 89)))


def asleep(*source: SourceLine, switches: int | None, seconds: float = 3.0) -> Case:
    """Rank 3 sleeps at its line, and has woken so many times since the look before; its peers wait for it."""
    kernel = Kernel("S", "hrtimer_nanosleep", "clock_nanosleep", cpu_s=0.0, since_s=seconds, switches=switches)
    return hang(*(waiting(n, call()) for n in range(3)), elsewhere(3, kernel, STEP), source=source)


@pytest.mark.parametrize(
    ("case", "short"),
    [
        (asleep(IN_FOR, switches=30), True),
        (asleep(IN_FOR, switches=0), False),  # one sleep
        (asleep(IN_FOR, switches=2), False),  # some that become longer, between attempts
        (asleep(IN_FOR, switches=None), False),  # a first look
        (asleep(IN_WHILE, switches=30), False),  # it may look for what never comes
        (asleep(FOR_IN_WHILE, switches=30), False),
        (asleep(switches=30), False),  # nothing is known of its loop
    ],
)
def test_who_wakes_often_in_a_for_loop_may_be_at_work(case: Case, short: bool) -> None:
    assert sleep_shortly(diagnose(case), case) is short

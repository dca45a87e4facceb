"""How long before its end a run is asked to stop."""

from __future__ import annotations

import pytest

from safelaunch.watch.rhythm import FACTOR, REST_S, SHARE, UNSEEN_SAVE_S, Rhythm

LONG = 100_000.0


def stepping(rhythm: Rhythm, step_s: float, steps: int, since: float = 1000.0) -> float:
    for number in range(1, steps + 1):
        rhythm.look(number, 0.0, since + number * step_s)
    return since + steps * step_s


def test_nothing_is_known_before_the_second_call() -> None:
    rhythm = Rhythm()
    rhythm.look(0, 0.0, 1.0)
    rhythm.look(1, 0.0, 2.0)

    assert not rhythm.known


def test_a_step_and_a_save_are_learned() -> None:
    rhythm = Rhythm()
    now = stepping(rhythm, 2.0, 20)
    assert rhythm.needed_s(LONG) == pytest.approx(FACTOR * (2.0 + UNSEEN_SAVE_S) + REST_S)

    rhythm.look(20, now, now + 30.0)
    rhythm.look(20, 0.0, now + 30.5)

    assert rhythm.needed_s(LONG) == pytest.approx(FACTOR * (2.0 + 30.0) + REST_S)


def test_what_ranks_do_between_two_calls_counts_as_a_step() -> None:
    rhythm = Rhythm()
    now = stepping(rhythm, 0.1, 100)
    rhythm.look(101, 0.0, now + 50.0)  # an evaluation

    assert rhythm.needed_s(LONG) == pytest.approx(FACTOR * (50.0 + UNSEEN_SAVE_S) + REST_S)


def test_a_short_run_works_for_most_of_its_time() -> None:
    rhythm = Rhythm()
    stepping(rhythm, 1.0, 3)

    assert rhythm.needed_s(120.0) == pytest.approx(SHARE * 120.0)


def test_a_restart_of_the_count_is_no_step() -> None:
    rhythm = Rhythm()
    now = stepping(rhythm, 1.0, 10)
    rhythm.look(0, 0.0, now + 500.0)
    rhythm.look(1, 0.0, now + 600.0)

    assert rhythm.needed_s(LONG) == pytest.approx(FACTOR * (1.0 + UNSEEN_SAVE_S) + REST_S)

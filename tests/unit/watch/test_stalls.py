"""Short stalls of one rank are summed up, and told of where they take a tenth of the time."""

from __future__ import annotations

import random

from paced import Need, Program

from safelaunch.watch.slow import SlowWatch

MINUTE = 60.0


def stalls(rank: int, every: int, seconds: float = 0.5) -> Need:
    """One rank stops for a moment in each so manieth step."""
    return lambda r, step: 0.05 + (seconds if r == rank and step % every == 0 else 0.0)


def test_stalls_that_take_a_tenth_of_the_time_are_told_with_their_sum() -> None:
    (told,) = Program(SlowWatch(), stalls(1, 15)).run(2 * MINUTE)

    assert (told.kind, told.ranks) == ("straggler", (1,))
    assert told.stalled is not None
    assert told.stalled.count >= 8
    assert 0.3 < told.stalled.share < 0.5
    assert 0.45 < told.stalled.longest < 0.55


def test_rare_stalls_are_told_by_nobody_but_summed_up() -> None:
    program = Program(SlowWatch(), stalls(1, 110))

    assert program.run(5 * MINUTE) == []
    in_all = program.watch.stalls.in_all()
    assert in_all is not None
    assert in_all.rank == 1
    assert 0.05 < in_all.share < 0.1


def test_where_every_rank_stalls_now_and_then_nobody_is_named() -> None:
    chance = random.Random(3)
    needs: Need = lambda _rank, _step: 0.05 + (0.6 if chance.random() < 0.03 else 0.0)  # noqa: E731
    program = Program(SlowWatch(), needs, ranks=3)

    assert program.run(5 * MINUTE) == []
    assert program.watch.stalls.in_all() is None


def test_a_rank_that_is_late_each_time_is_slow_and_has_no_stalls() -> None:
    needs: Need = lambda rank, step: 0.6 if rank == 1 and step >= 100 else 0.05  # noqa: E731
    told = Program(SlowWatch(), needs).run(5 * MINUTE)

    assert [(one.ranks, one.stalled) for one in told] == [((1,), None)]


def test_a_few_stalls_say_nothing() -> None:
    needs: Need = lambda rank, step: 0.05 + (2.0 if rank == 0 and step in (200, 400, 600) else 0.0)  # noqa: E731
    program = Program(SlowWatch(), needs)

    assert program.run(2 * MINUTE) == []
    assert program.watch.stalls.in_all() is None


def test_a_main_process_that_saves_every_so_many_steps_does_what_it_is_meant_to_do() -> None:
    program = Program(SlowWatch(), stalls(0, 10))

    assert program.run(2 * MINUTE) == []
    assert program.watch.stalls.in_all() is None


def test_a_main_process_that_stalls_now_and_then_is_told() -> None:
    chance = random.Random(5)
    often = {step for step in range(2000) if chance.random() < 0.07}
    needs: Need = lambda rank, step: 0.05 + (0.5 if rank == 0 and step in often else 0.0)  # noqa: E731
    (told,) = Program(SlowWatch(), needs).run(2 * MINUTE)

    assert (told.ranks, told.stalled is not None) == ((0,), True)

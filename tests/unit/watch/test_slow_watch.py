"""What the watch for slow runs suspects, since which step, and above all when it keeps quiet."""

from __future__ import annotations

import random

import pytest
from paced import Need, Program, steady

from safelaunch.watch.pace import onset
from safelaunch.watch.slow import AGAIN_S, SlowWatch

MINUTE = 60.0


def slow_rank(rank: int, first: int = 0, last: int = 10**9, seconds: float = 0.15) -> Need:
    return lambda r, step: seconds if r == rank and first <= step < last else 0.05


def slow_for_all(first: int, seconds: float = 0.15, last: int = 10**9) -> Need:
    return lambda _, step: seconds if first <= step < last else 0.05


def program(needs: Need = steady, **facts: object) -> Program:
    expect = facts.pop("expect", None)
    return Program(SlowWatch(expect), needs, **facts)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- stragglers


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(("first", "ranks"), [(40, 4), (40, 2), (300, 8)])
def test_a_rank_that_becomes_slow_is_named_with_its_step(first: int, ranks: int, hidden: bool) -> None:
    (told,) = program(slow_rank(1, first), ranks=ranks, hidden=hidden).run(MINUTE)

    assert (told.kind, told.ranks, told.unit) == ("straggler", (1,), "step")
    assert told.since is not None
    assert abs(told.since - first) <= 2
    assert told.source == ("recorder" if hidden else "calls")
    pace = next(pace for pace in told.paces if pace.rank == 1)
    assert pace.own_s == pytest.approx(0.15, rel=0.1)
    assert pace.peers_s == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("seconds", [0.3, 1.5, 4.0])
def test_a_collective_behind_another_of_cpp_does_not_hide_who_is_late(seconds: float) -> None:
    told = program(slow_rank(1, 60, seconds=seconds), ranks=3, masked=True).run(5 * MINUTE)

    assert [(one.kind, one.ranks, one.source) for one in told] == [("straggler", (1,), "recorder")]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_rank_that_has_always_been_slow_has_no_first_step(hidden: bool) -> None:
    (told,) = program(slow_rank(2), hidden=hidden).run(MINUTE)

    assert (told.ranks, told.since) == ((2,), None)


@pytest.mark.parametrize("hidden", [False, True])
def test_long_steps_count_as_well(hidden: bool) -> None:
    needs: Need = lambda rank, step: 3.0 if rank == 1 and step >= 60 else 1.0  # noqa: E731
    (told,) = program(needs, hidden=hidden).run(5 * MINUTE)

    assert (told.ranks, told.since) == ((1,), 60)


def test_two_of_five_may_be_slow_together() -> None:
    needs: Need = lambda rank, _: 0.15 if rank in (1, 3) else 0.05  # noqa: E731
    (told,) = program(needs, ranks=5).run(MINUTE)

    assert told.ranks == (1, 3)


def test_where_most_are_slow_nobody_is_named() -> None:
    needs: Need = lambda rank, _: 0.05 if rank == 0 else 0.15  # noqa: E731

    assert program(needs).run(MINUTE) == []


def test_its_end_is_noticed_and_it_may_be_told_again() -> None:
    run = program(lambda rank, step: 0.15 if rank == 2 and (100 <= step < 300 or step >= 1500) else 0.05)
    told = run.run(3 * MINUTE)

    assert [(one.ranks, one.kind) for one in told] == [((2,), "straggler")] * 2
    assert len(run.over) == 1
    assert run.told[1][0] - run.told[0][0] >= AGAIN_S


def test_without_optimizers_the_collectives_are_counted() -> None:
    (told,) = program(slow_rank(2, 40), counts="collectives").run(MINUTE)

    assert (told.ranks, told.unit) == ((2,), "collective")
    assert told.since == 40


# --------------------------------------------------------------------------------------------- nothing is wrong


def by_chance(rank: int, step: int) -> float:
    """Each rank and step for itself, as the times of a memoryless queue."""
    return 0.01 + random.Random(step * 64 + rank).expovariate(20)


def lengths(_rank: int, step: int) -> float:
    """Sequences of different lengths, the same on all ranks."""
    return 0.02 + random.Random(step).expovariate(20)


def buckets(_rank: int, step: int) -> float:
    """Batches of similar lengths follow one another."""
    return 0.03 + 0.05 * ((step // 40) % 4) / 3


def evaluates(every: int, seconds: float) -> Need:
    return lambda rank, step: seconds if rank == 0 and step % every == 0 else 0.05


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    "needs",
    [
        steady,
        by_chance,
        lengths,
        buckets,
        evaluates(10, 0.5),
        evaluates(3, 0.3),
        evaluates(100, 20.0),
        lambda rank, _: 0.055 if rank == 1 else 0.05,
        lambda rank, step: 30.0 if step == 1 and rank == 3 else 0.05,
        lambda _, step: 3.0 if step < 9 else 0.05,
        lambda _, step: 12.0 if step % 300 == 0 else 0.05,
        lambda rank, step: 0.15 if rank == step % 4 else 0.05,
        lambda rank, step: 0.15 if rank == 1 and 200 <= step < 212 else 0.05,
    ],
)
def test_healthy_runs_are_left_alone(needs: Need, hidden: bool) -> None:
    assert program(needs, hidden=hidden).run(2.5 * MINUTE) == []


def test_the_flight_recorders_are_asked_rarely() -> None:
    run = program(hidden=True)
    run.run(10 * MINUTE)

    assert 2 <= len(run.asked) <= 6


@pytest.mark.parametrize("seconds", [0.8, 1.3, 2.0, 3.0])
def test_the_first_answer_of_the_flight_recorders_is_enough_where_steps_are_long(seconds: float) -> None:
    run = program(slow_rank(1, seconds=seconds), hidden=True)

    (told,) = run.run(40 * seconds)

    assert (told.kind, told.ranks, len(run.asked)) == ("straggler", (1,), 1)


def test_messages_between_ranks_say_nothing_of_who_is_late() -> None:
    run = program(slow_rank(1), calls=lambda rank, _: ("send",) if rank == 0 else ("recv",))

    assert run.run(MINUTE) == []


def test_the_work_of_experts_is_uneven_by_design() -> None:
    run = program(steady, calls=lambda _, __: ("all_to_all_single", "all_to_all_single"))

    assert run.run(MINUTE) == []


def test_ranks_that_call_from_different_lines_are_not_compared() -> None:
    run = program(slow_rank(1), site=lambda rank: f"train.py:{rank}")

    assert run.run(MINUTE) == []


@pytest.mark.parametrize("hidden", [False, True])
def test_ranks_that_have_come_to_their_end_are_no_measure_for_those_that_go_on(hidden: bool) -> None:
    def needs(rank: int, step: int) -> float:
        return 0.001 if rank != 2 and step > 60 else 0.12

    assert program(needs, ranks=3, hidden=hidden, last_step={0: 60, 1: 60}).run(3 * MINUTE) == []
    assert program(needs, ranks=3, hidden=hidden).run(3 * MINUTE) != []


def test_a_pause_counts_for_nobody() -> None:
    run = program()
    run.run(20)
    for _ in range(12):
        run.pause(20)
        assert run.run(2) == []


# --------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("hidden", [False, True])
def test_everybody_slower_than_before(hidden: bool) -> None:
    (told,) = program(slow_for_all(60), hidden=hidden).run(MINUTE)

    assert (told.kind, told.ranks) == ("slower", ())
    assert told.since is not None
    assert abs(told.since - 60) <= 2
    assert told.usual_s == pytest.approx(0.053, rel=0.1)
    assert told.now_s == pytest.approx(0.155, rel=0.1)


@pytest.mark.parametrize("answer_s", [1.0, 9.0])
def test_steps_that_were_short_for_three_seconds_alone_are_remembered(answer_s: float) -> None:
    """Until the recorders have answered nothing is said; meanwhile most of what was seen has become slow."""
    run = Program(SlowWatch(), lambda _, step: 0.03 if step < 80 else 0.09, hidden=True, answer_s=answer_s)
    told = run.run(60)

    assert [one.kind for one in told] == ["slower"]
    assert told[0].since == pytest.approx(80, abs=8)
    assert told[0].usual_s == pytest.approx(0.031, rel=0.1)


def test_what_becomes_slower_bit_by_bit() -> None:
    told = program(lambda _, step: 0.05 * 1.004**step).run(2 * MINUTE)

    assert [one.kind for one in told] == ["slower"]
    assert told[0].grows
    assert told[0].usual_s == pytest.approx(0.06, rel=0.2)
    assert told[0].now_s is not None
    assert told[0].now_s > 2 * told[0].usual_s


@pytest.mark.parametrize("hidden", [False, True])
def test_longer_sequences_from_some_step_on_have_jumped(hidden: bool) -> None:
    needs = {0: 0.05, 1: 0.08, 2: 0.11}
    for told in program(lambda _, step: needs[min(step // 400, 2)], hidden=hidden).run(2 * MINUTE):
        assert not told.grows


def test_less_than_twice_as_long_is_not_told() -> None:
    assert program(slow_for_all(60, 0.09)).run(MINUTE) == []


def test_what_is_over_is_noticed() -> None:
    run = program(slow_for_all(300, last=500))
    run.run(2 * MINUTE)

    assert [one.kind for _, one in run.told] == ["slower"]
    assert len(run.over) == 1


def test_who_is_late_is_said_to_be_unknown_where_recorders_do_not_answer() -> None:
    run = program(slow_rank(1, 100), hidden=True, answers=False)
    (told,) = run.run(MINUTE)

    assert (told.kind, told.unknown) == ("slower", "they did not answer")


@pytest.mark.parametrize("hidden", [False, True])
def test_slower_than_the_profile_expects(hidden: bool) -> None:
    (told,) = program(expect=0.02, hidden=hidden).run(2 * MINUTE)

    assert (told.kind, told.expect_s, told.since) == ("below", 0.02, None)
    assert program(expect=0.05).run(MINUTE) == []


def test_a_straggler_is_a_better_answer_than_an_expectation() -> None:
    told = program(slow_rank(3), expect=0.02, hidden=True).run(MINUTE)

    assert [(one.kind, one.ranks) for one in told] == [("straggler", (3,))]


# ---------------------------------------------------------------------------------------------------- loaders


def test_all_wait_for_their_loaders() -> None:
    (told,) = program(loads=lambda _, __: 0.1).run(MINUTE)

    assert (told.kind, told.ranks, told.source) == ("loader", (), "loader")
    assert all(pace.loading == pytest.approx(0.66, abs=0.05) for pace in told.paces)


@pytest.mark.parametrize("hidden", [False, True])
def test_one_waits_for_its_loader_and_the_others_for_it(hidden: bool) -> None:
    (told,) = program(loads=lambda rank, _: 0.1 if rank == 1 else 0.001, hidden=hidden).run(MINUTE)

    assert (told.kind, told.ranks) == ("straggler", (1,))
    assert told.source == ("recorder" if hidden else "calls")


def test_where_the_meetings_are_not_seen_its_loader_is_enough() -> None:
    run = program(loads=lambda rank, _: 0.1 if rank == 1 else 0.001, hidden=True, answers=False)
    (told,) = run.run(MINUTE)

    assert (told.kind, told.ranks, told.source) == ("straggler", (1,), "loader")


def test_a_toy_whose_loader_takes_most_of_a_millisecond_is_no_run() -> None:
    run = Program(SlowWatch(), lambda _, __: 0.001, lambda _, __: 0.004)

    assert run.run(MINUTE) == []


def test_a_new_attempt_begins_anew() -> None:
    run = program(slow_rank(1))
    run.run(5)
    run.watch.restart()

    assert run.watch.pace.bins == []
    assert run.watch.told == {}


def bins(*parts: tuple[bool, int]) -> list[bool]:
    return [bad for bad, count in parts for _ in range(count)]


@pytest.mark.parametrize(
    ("bad", "begun"),
    [
        (bins((False, 20), (True, 20)), 20),
        (bins((False, 5), (True, 2), (False, 13), (True, 20)), 20),
        (bins((True, 40)), 0),
        (bins((False, 20), (True, 12), (False, 1), (True, 7)), 20),
        (bins((False, 24), (True, 16)), 24),
        (bins((False, 28), (True, 12)), None),
        (bins((False, 20), (True, 18), (False, 2)), None),
        (bins((False, 40)), None),
        (bins((False, 20), *((True, 3), (False, 1)) * 4, (True, 4)), 20),
        (bins((False, 25), *((True, 3), (False, 1)) * 3, (True, 3)), None),
    ],
)
def test_where_a_series_begins_to_be_bad(bad: list[bool], begun: int | None) -> None:
    assert onset(bad, 20) == begun

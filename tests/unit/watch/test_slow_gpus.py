"""What is suspected of runs whose calls end on GPUs, where hosts run ahead."""

from __future__ import annotations

import random

import pytest
from paced import Need, Program, steady
from test_slow_watch import MINUTE, by_chance, evaluates, lengths, program, slow_for_all, slow_rank

from safelaunch.watch.device_times import Judged, Look, Mark, judge, spans

SITE = ("train.py", 88)


def on_gpus(gpus: Need = steady, **facts: object) -> Program:
    return program(gpus=gpus, on_device=True, **facts)


# --------------------------------------------------------------------------------------------------------- one is late


@pytest.mark.parametrize("counts", ["steps", "collectives"])
def test_a_host_that_comes_later_than_those_that_run_ahead_is_not_late(counts: str) -> None:
    """Who looks at each loss waits there for its GPU, while the others have long enqueued what follows."""
    run = program(slow_rank(0, seconds=0.049), gpus=lambda _, __: 0.05, on_device=True, counts=counts)
    run.needs = lambda rank, _: 0.049 if rank == 0 else 0.005

    assert run.run(2 * MINUTE) == []


@pytest.mark.parametrize("counts", ["steps", "collectives"])
def test_a_gpu_that_comes_last_is_named_whenever_its_host_comes(counts: str) -> None:
    (told,) = on_gpus(slow_rank(2), counts=counts).run(MINUTE)

    assert (told.kind, told.ranks, told.source, told.since, told.on_device) == ("straggler", (2,), "device", None, True)
    late = next(one for one in told.devices if one.rank == 2)
    peer = next(one for one in told.devices if one.rank == 1)
    if counts == "steps":
        assert (late.own_s, peer.own_s) == (pytest.approx(0.15, rel=0.1), pytest.approx(0.05, rel=0.1))
        assert late.host_s < 0.002
        assert peer.call_s == pytest.approx(0.1, rel=0.1)


def test_it_becomes_slow_at_a_step() -> None:
    (told,) = on_gpus(slow_rank(1, 600)).run(2 * MINUTE)

    assert told.ranks == (1,)
    assert told.since == pytest.approx(600, abs=8)
    assert next(one for one in told.devices_before if one.rank == 1).own_s == pytest.approx(0.05, rel=0.1)


def test_it_keeps_up_again() -> None:
    run = on_gpus(slow_rank(1, 0, 600))
    run.run(5 * MINUTE)

    assert [one.ranks for _, one in run.told] == [(1,)]
    assert len(run.over) == 1


def test_what_waits_for_its_host_is_told_apart() -> None:
    hosts: Need = lambda rank, _: 0.14 if rank == 3 else 0.001  # noqa: E731
    (told,) = on_gpus(slow_rank(3), hosts=hosts).run(MINUTE)

    late = next(one for one in told.devices if one.rank == 3)
    assert late.host_s == pytest.approx(0.14, rel=0.1)


# --------------------------------------------------------------------------------------------------- nothing is wrong


@pytest.mark.parametrize(
    "gpus",
    [
        steady,
        by_chance,
        lengths,
        evaluates(10, 0.5),
        evaluates(3, 0.3),
        evaluates(100, 20.0),
        lambda rank, _: 0.055 if rank == 1 else 0.05,
        lambda rank, step: 0.15 if rank == step % 4 else 0.05,
        lambda rank, _: 0.05 if rank == 0 else 0.15,
        lambda _, step: 3.0 if step < 9 else 0.05,
    ],
)
def test_healthy_runs_are_left_alone(gpus: Need) -> None:
    assert on_gpus(gpus).run(5 * MINUTE) == []


def test_gpus_are_followed_rarely() -> None:
    run = on_gpus()
    run.run(10 * MINUTE)

    assert 2 <= len(run.asked) <= 6


# --------------------------------------------------------------------------------------------------------- all of them


def test_who_is_late_is_known_before_something_is_said_of_all() -> None:
    (told,) = on_gpus(slow_for_all(600)).run(2 * MINUTE)

    assert (told.kind, told.unknown) == ("slower", "")
    assert min(one.own_s for one in told.devices) > 2 * max(one.own_s for one in told.devices_before)


def test_a_call_that_lasts_longer_is_of_nobody() -> None:
    (told,) = on_gpus(call_s=lambda step: 0.12 if step >= 600 else 0.001).run(2 * MINUTE)

    assert (told.kind, told.ranks) == ("slower", ())
    assert min(one.call_s for one in told.devices) > 0.1 > max(one.call_s for one in told.devices_before)


def test_gpus_that_could_not_be_followed_leave_it_open_who_is_late() -> None:
    (slower,) = on_gpus(slow_for_all(600), answers=False).run(2 * MINUTE)
    (below,) = on_gpus(expect=0.02, answers=False).run(2 * MINUTE)

    assert (slower.kind, slower.unknown) == ("slower", "they could not be followed")
    assert (below.kind, below.unknown) == ("below", "they could not be followed")


# --------------------------------------------------------------------------------------------------- marks and spans


def step(t: float, *parts: tuple[str, str, float], site: tuple[str, int] = SITE) -> list[Mark]:
    """Marks that a GPU reaches so many seconds after `t`, each."""
    return [Mark(0, kind, call, site, t, t + after) for kind, call, after in parts]


def look(make: object, steps: int = 200, each: float = 0.1) -> Look:
    marks = [mark for n in range(steps) for mark in make(n * each)]  # type: ignore[operator]
    return Look(0.0, steps * each, marks)


def judged(by_rank: dict[int, Look]) -> Judged:
    return judge(by_rank, lambda t: int(t / 0.1))


def ddp(own: float) -> Look:
    """A forward pass of so many seconds; backward pass and optimizer take what is left of a step."""
    return look(lambda t: step(t, ("forward", "a forward pass", own), ("step", "a step of an optimizer", 0.0999)))


def test_of_ddp_the_forward_pass_says_who_is_late() -> None:
    """A GPU 1.5 times as slow: 10 ms of 100 more in its forward pass, and 20 more in its backward pass."""
    found = judged({rank: ddp(0.03 if rank == 1 else 0.02) for rank in range(4)})

    assert found.late is not None
    assert found.late.ranks == (1,)
    assert all(pace.mixed for pace in found.paces)
    assert judged({rank: ddp(0.022 if rank == 1 else 0.02) for rank in range(4)}).late is None


def test_a_step_of_an_optimizer_ends_no_call_of_python_and_starts_none() -> None:
    marks = step(0.0, ("ahead", "all_reduce", 0.1), ("step", "", 0.2), ("behind", "all_reduce", 0.3), ("step", "", 0.4))
    found = list(spans([*marks, *step(1.0, ("ahead", "all_reduce", 0.1))]))

    assert [(one.own, round(one.until - one.since, 3)) for one in found] == [(False, 0.2), (True, 0.8)]


def test_the_work_between_two_exchanges_of_experts_is_uneven_by_design() -> None:
    def moe(own: float) -> Look:
        calls = (("ahead", 0.01), ("behind", 0.02), ("ahead", 0.02 + own), ("behind", 0.0999))
        return look(lambda t: step(t, *((kind, "all_to_all_single", after) for kind, after in calls)))

    assert judged({rank: moe(0.06 if rank == 1 else 0.01) for rank in range(4)}).late is None


@pytest.mark.parametrize("call", ["send", "irecv"])
def test_messages_between_ranks_say_nothing_of_who_is_late(call: str) -> None:
    looks = {rank: look(lambda t: step(t, ("ahead", call, 0.02), ("behind", call, 0.05))) for rank in range(2)}

    assert judged(looks).unknown == "ranks send messages to one another"


def test_ranks_that_call_from_different_lines_are_not_compared() -> None:
    def loop(line: int, own: float) -> Look:
        ways = ("ahead", "all_reduce", own), ("behind", "all_reduce", 0.0999)
        return look(lambda t: step(t, *ways, site=("train.py", line)))

    assert "lines of their own" in judged({0: loop(1, 0.02), 1: loop(2, 0.08)}).unknown
    assert judged({0: loop(1, 0.02), 1: loop(1, 0.08)}).late is not None


def test_gradients_that_are_reduced_one_by_one_from_one_line() -> None:
    def loop(rank: int) -> Look:
        own = 0.05 if rank == 2 else 0.01
        ways = [("ahead", "all_reduce", own), ("behind", "all_reduce", 0.06)]
        for n in range(20):
            ways += [("ahead", "all_reduce", 0.06 + n / 1000), ("behind", "all_reduce", 0.0605 + n / 1000)]
        return look(lambda t: step(t, *ways))

    found = judged({rank: loop(rank) for rank in range(4)})
    assert found.late is not None
    assert found.late.ranks == (2,)


def test_too_few_steps_tell_nothing() -> None:
    short = look(lambda t: step(t, ("ahead", "all_reduce", 0.02), ("behind", "all_reduce", 0.05)), steps=15, each=0.5)

    assert "steps were seen" in judge({0: short, 1: short}, lambda t: int(t / 0.5)).unknown


def test_hosts_that_run_ahead_do_not_make_the_steps_of_gpus_shorter() -> None:
    looks = {rank: ddp(0.05 if rank == 1 else 0.02) for rank in range(4)}
    found = judge(looks, lambda t: int(1.3 * t / 0.1))

    assert next(one for one in found.paces if one.rank == 1).own_s == pytest.approx(0.05, rel=0.02)


def test_times_that_jump_for_both_say_nothing() -> None:
    def noisy(seed: int) -> Look:
        chance = random.Random(seed)
        return look(
            lambda t: step(t, ("ahead", "all_reduce", 0.09 * chance.random()), ("behind", "all_reduce", 0.0999))
        )

    assert judged({rank: noisy(rank) for rank in range(8)}).late is None


def test_a_gpu_that_could_not_be_followed_is_told() -> None:
    found = judged({0: ddp(0.02), 1: Look(0.0, 20.0, (), "the CUDA runtime could not be found")})

    assert found.unknown == "the GPU of rank 1 could not be followed: the CUDA runtime could not be found"

"""What ranks do now, in words: what stands first is what most of them do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from safelaunch.diagnosis import now
from safelaunch.diagnosis.waitgraph.calls import ENDED
from safelaunch.model import Case, Collective, Incident, Kernel, Location, Phase, RankFacts, Stack

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
TRAIN = "/home/ada/train.py"


def rank(number: int, *frames: tuple[str, int, str], step: int = 812, **more: Any) -> RankFacts:
    stack = Stack(tuple(Location(*frame) for frame in frames), "py-spy") if frames else None
    return RankFacts(number, number, 4100 + number, stack=stack, step=step, stepped=99.0 if step else None, **more)


def in_all_reduce(number: int, line: int = 31, **more: Any) -> RankFacts:
    frames = (f"{TORCH}/distributed/distributed_c10d.py", 2936, "all_reduce"), (TRAIN, line, "main")
    return rank(number, *frames, **more)


def case(*ranks: RankFacts) -> Case:
    return Case(Incident("hang", 0, (), 90.0), "node-a", len(ranks), ranks, now=100.0)


def test_what_all_do_is_the_headline() -> None:
    found = case(*(in_all_reduce(number) for number in range(4)))

    assert now.headline(found) == "ranks 0-3 train: step 812, in all_reduce at train.py:31"
    assert len(now.lines(found)) == 1


def test_those_who_do_something_else_have_a_line_of_their_own() -> None:
    wrapper = (f"{TORCH}/optim/optimizer.py", 526, "Optimizer.profile_hook_step.<locals>.wrapper")
    late = rank(1, (f"{TORCH}/optim/sgd.py", 118, "step"), wrapper, (TRAIN, 25, "main"), step=811)
    found = case(in_all_reduce(0), late, in_all_reduce(2))

    assert now.headline(found) == "ranks 0-2 train: steps 811 to 812, 2 of 3 in all_reduce at train.py:31"
    assert now.lines(found) == [
        "ranks 0 and 2: step 812, in all_reduce at train.py:31",
        "rank 1: step 811, in step at train.py:25",
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("loader", "waiting for its loader at train.py:18"),
        ("checkpoint save", "in checkpoint save at train.py:18"),
        ("evaluate", "in evaluate at train.py:18"),
        ("torch.profiler", "being traced at train.py:18"),
    ],
)
def test_a_phase_tells_more_than_a_stack(name: str, told: str) -> None:
    assert now.activity(rank(0, (TRAIN, 18, "main"), phases=(Phase(name, 98.0),))) == told


def test_without_a_stack_the_record_of_calls_tells() -> None:
    call = Collective("all_reduce", "0", 7, 4, "float32", False, 98.0, location=Location(TRAIN, 31, "main"))

    assert now.activity(rank(0, collectives=(call,))) == "in all_reduce at train.py:31"
    assert "could not be had" in now.activity(rank(0, collectives=(dataclasses.replace(call, done=True),)))


def test_a_rank_that_has_not_moved_is_told_with_what_the_kernel_says() -> None:
    facts = rank(0, (TRAIN, 18, "load"), kernel=Kernel("S", "hrtimer_nanosleep", "clock_nanosleep"))

    assert now.activity(facts) == "running at train.py:18"
    assert now.activity(dataclasses.replace(facts, earlier=facts.stack)) == "sleeps in load at train.py:18"


def test_a_step_of_long_ago_is_said_to_be_old() -> None:
    found = case(dataclasses.replace(in_all_reduce(0), stepped=100.0 - 600))

    assert now.headline(found) == "rank 0 trains: step 812, 10m ago, in all_reduce at train.py:31"


def test_ranks_without_steps_run() -> None:
    assert now.headline(case(in_all_reduce(0, step=0))) == "rank 0 runs: in all_reduce at train.py:31"


def test_ranks_that_are_stopped_or_gone_are_told() -> None:
    found = case(rank(0, (TRAIN, 18, "main"), kernel=Kernel("T", "do_signal_stop")), rank(1, state=ENDED))

    assert now.lines(found) == ["rank 0: step 812, stopped (SIGSTOP, or a debugger)", "rank 1: step 812, ended"]

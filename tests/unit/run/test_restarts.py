"""Whether a restart promises anything: always as torchrun does, with a word; and what was asked for ends the run."""

from __future__ import annotations

import dataclasses

import pytest
from said import Said

from safelaunch.model import Case, Collective, Incident, LaunchPlan, Location, RankFacts, Verdict
from safelaunch.run.restarts import OPTION, Restarts

RAISED = Verdict(
    code="SL401",
    slug="exception",
    kind="crash",
    summary="rank 1 raised ValueError (pid 12)",
    culprit_ranks=(1,),
    location=Location("train.py", 12, "main"),
    host="node-b",
)
CALL = Collective("all_reduce", "0", 1, 1, "float32", done=True, t=1.0)


class Run:
    def __init__(self, *, useful: bool, most: int = 3) -> None:
        self.console = Said()
        self.console.aside = self.console.lines.append  # type: ignore[method-assign]
        plan = LaunchPlan(
            "id", "token", "", "", "script", "train.py", (), {"max_restarts": most}, {}, 30.0,
            useful_restarts=useful, rendezvous_timeout=None,
        )  # fmt: skip
        self.restarts = Restarts(plan, self.console)

    def fails(self, attempt: int, step: int, verdict: Verdict = RAISED, *, world: int = 2, **facts: object) -> str:
        """What is said after an attempt."""
        began = {"collectives": (CALL,), **facts}
        ranks = tuple(RankFacts(rank, rank, 100 + rank, step=step, **began) for rank in range(2))  # type: ignore[arg-type]
        before = len(self.console.lines)
        self.restarts.concluded(Case(Incident("exit", attempt, (1,), 1.0), "node-b", world, ranks), verdict)
        return " ".join(self.console.lines[before:])


def test_by_default_a_restart_follows_and_a_repeated_failure_is_said() -> None:
    run = Run(useful=False)
    assert run.fails(0, 60) == ""
    said = run.fails(1, 60, dataclasses.replace(RAISED, summary="rank 1 raised ValueError (pid 99)"))
    assert "the same verdict at the same step (60) as in attempt 0" in said
    assert OPTION in said
    assert not run.restarts.stops


def test_what_was_asked_for_ends_the_run_at_the_second_time() -> None:
    run = Run(useful=True)
    assert run.fails(0, 60) == ""
    assert not run.restarts.stops
    assert run.fails(1, 60).startswith("no restart: the same verdict at the same step (60)")
    assert run.restarts.stops


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        (61, RAISED),
        (60, dataclasses.replace(RAISED, culprit_ranks=(0,))),
        (60, dataclasses.replace(RAISED, location=Location("train.py", 13, "main"))),
        (60, dataclasses.replace(RAISED, code="SL402")),
    ],
)
def test_another_failure_is_no_repetition(step: int, verdict: Verdict) -> None:
    run = Run(useful=True)
    run.fails(0, 60)
    assert run.fails(1, step, verdict) == ""
    assert not run.restarts.stops


def test_before_the_first_step_nothing_is_tried_again() -> None:
    run = Run(useful=True)
    assert "before the first step" in run.fails(0, 0, collectives=())
    assert run.restarts.stops


@pytest.mark.parametrize("facts", [{"batch": 1, "collectives": ()}, {"watched": False, "collectives": ()}, {}])
def test_what_has_begun_or_is_not_known_is_tried_again(facts: dict[str, object]) -> None:
    run = Run(useful=True)
    run.fails(0, 0, **facts)  # type: ignore[arg-type]
    assert not run.restarts.stops


def test_what_is_not_the_programs_fault_is_tried_again() -> None:
    run = Run(useful=True)
    lost = dataclasses.replace(RAISED, code="SL604", kind="infra", culprit_ranks=(), location=None)
    assert run.fails(0, 0, lost, collectives=()) == ""
    assert run.fails(1, 0, lost, collectives=()) == ""
    assert not run.restarts.stops


def test_of_the_last_attempt_nothing_is_said() -> None:
    run = Run(useful=True, most=1)
    run.fails(0, 60)
    assert run.fails(1, 60) == ""


def test_a_node_that_is_to_blame_again_is_named() -> None:
    run = Run(useful=False)
    assert run.fails(0, 60, world=4) == ""
    said = run.fails(1, 90, dataclasses.replace(RAISED, code="SL402"), world=4)
    assert said == (
        "ranks of node-b failed in both attempts (SL401 and SL402): look at what they read, and at the node"
    )

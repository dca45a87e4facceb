"""What happens in each phase of a run, and what leads to the next."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch import procfs
from safelaunch.launch.blocked import ACTS_S
from safelaunch.launch.phases import Phase
from safelaunch.launch.stages import Stages
from safelaunch.launch.supervisor import SETTLE_S, Supervisor
from safelaunch.model import Exit, Incident, LaunchPlan, PreflightReport, Verdict

PASSED = PreflightReport((), "node-a", 0.0)
CRASH = Verdict(code="SL401", slug="s", kind="crash", summary="it failed", culprit_ranks=(0,))
INFRA = Verdict(code="SL601", slug="s", kind="infra", summary="the agent failed")


class Tree:
    """Keeps what the supervisor has done to the processes."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.events, self.to_us = os.pipe()
        self.agent = procfs.read(os.getpid())
        self.agent_exit = self.fork_server = self.fork_server_exit = None
        self.guard = SimpleNamespace(pid=0)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.done.append((name, *arguments))

    def around_ranks(self) -> dict[str, Any]:
        return {}

    def died_with_fork_server(self, _: Any) -> None:
        return None

    def words(self) -> list[str]:
        return [arguments[0] for name, *arguments in self.done if name == "tell"]

    def signals(self, of: str) -> list[int]:
        return [arguments[-1] for name, *arguments in self.done if name == of]


@pytest.fixture
def tree() -> Iterator[Tree]:
    found = Tree()
    yield found
    os.close(found.events)
    os.close(found.to_us)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def run(tmp_path: Path, tree: Tree, said: list[str]) -> Iterator[Any]:
    """A supervisor whose node is being checked; `restart_hangs` is false, and one restart is allowed."""
    plan = LaunchPlan(
        "id", "token", str(tmp_path), str(tmp_path), "script", "train.py", (), {"max_restarts": 1}, {}, 30.0,
        restart_hangs=False, rendezvous_timeout=600.0,
    )  # fmt: skip
    stages = Stages(
        preflight=lambda: PASSED,
        suspect=lambda *_: "evidence",
        settled=lambda _: True,
        conclude=lambda *_: CRASH,
        watch=lambda _: None,
        infra=lambda _: INFRA,
        say=said.append,
        notice=lambda verdict, step: said.append(f"{verdict.code}; {step}"),
    )
    signals: Any = SimpleNamespace(fd=-1)
    supervisor: Any = Supervisor(plan, signals, stages, tree)  # type: ignore[arg-type]
    supervisor._selector = selectors.DefaultSelector()
    yield supervisor
    supervisor._selector.close()


def checked(run: Any, report: PreflightReport = PASSED) -> None:
    run._outcome.report = report
    os.write(run._stage_pipe, b"\n")
    run._on_preflight()


def started(run: Any, attempt: int = 0) -> None:
    run.on_group(attempt, 2, 2)
    for rank in range(2):
        run.on_worker([], rank=rank, local_rank=rank, pid=100 + rank, start=1, rank_dir="", black_box="")


def failed(run: Any, rank: int = 0) -> None:
    run.on_exit(100 + rank, 1, 0.0)


def phase(run: Any) -> Phase:
    """As it is now: to mypy an attribute that was compared keeps its value."""
    found: Phase = run._phase
    return found


def test_a_healthy_run(run: Any, tree: Tree) -> None:
    assert phase(run) is Phase.CHECKING
    checked(run)
    assert phase(run) is Phase.STARTING
    assert ("let_go", None) in tree.done
    started(run)
    assert phase(run) is Phase.RUNNING
    run.on_succeeded()
    run._on_agent_exit()
    assert phase(run) is Phase.OVER
    assert run._outcome.exit_code == 0


def test_a_failure_is_concluded_and_the_next_attempt_runs(run: Any, tree: Tree, said: list[str]) -> None:
    checked(run)
    started(run)
    failed(run)
    assert phase(run) is Phase.INCIDENT
    failed(run, 1)  # a consequence opens no second incident
    run._conclude_once_settled()
    assert phase(run) is Phase.CONCLUDED
    assert tree.words() == ["release"]
    started(run, 1)
    assert phase(run) is Phase.RUNNING
    assert said == ["SL401; restarting: attempt 1 of 1"]


def test_ranks_that_torch_elastic_ends_for_itself_have_not_failed(run: Any, said: list[str]) -> None:
    checked(run)
    started(run)
    run.on_stopping()
    assert phase(run) is Phase.REGROUPING
    failed(run)
    assert phase(run) is Phase.REGROUPING
    started(run, 1)
    assert phase(run) is Phase.RUNNING
    assert said == ["restarting: attempt 1 of 1"]


def test_a_start_with_other_nodes_is_no_attempt_of_those_that_are_counted(run: Any, said: list[str]) -> None:
    checked(run)
    started(run)
    run.on_stopping()
    started(run, 0)
    assert said == ["starting anew, which counts as no restart"]


def test_why_the_ranks_of_another_node_failed_is_said_where_they_are_started_anew(run: Any, said: list[str]) -> None:
    run._stages = dataclasses.replace(run._stages, reason=lambda: CRASH)
    checked(run)
    started(run)
    run.on_stopping()
    started(run, 0)
    assert said == [f"{CRASH.code}; starting anew, which counts as no restart"]


def test_a_hang_ends_the_run(run: Any, tree: Tree) -> None:
    checked(run)
    started(run)
    run._open(Incident("hang", 0, (0,), 0.0))
    run._conclude()
    assert phase(run) is Phase.ENDING
    assert tree.words() == ["hold"]
    failed(run)
    failed(run, 1)
    assert phase(run) is Phase.ENDING
    assert tree.signals("signal_agent") == [signal.SIGTERM]  # its workers are gone
    run._on_agent_exit()
    assert run._outcome.verdicts == [CRASH]


@pytest.mark.parametrize("before", ["checking", "running", "incident", "concluded"])
def test_a_signal_ends_the_run_whenever_it_comes(before: str, run: Any, tree: Tree) -> None:
    if before != "checking":
        checked(run)
        started(run)
    if before in ("incident", "concluded"):
        failed(run)
    if before == "concluded":
        run._conclude_once_settled()
    run._interrupt(signal.SIGTERM)
    assert phase(run) is Phase.ENDING
    passed_on = before in ("running", "incident")
    assert (signal.SIGTERM in tree.signals("signal_workers")) == passed_on
    assert bool(tree.signals("signal_agent")) != passed_on
    run._on_agent_exit()
    assert run._outcome.exit_code == 128 + signal.SIGTERM
    assert INFRA not in run._outcome.verdicts


def test_a_rank_that_comes_after_the_signal_gets_it_too(run: Any, tree: Tree) -> None:
    run._interrupt(signal.SIGTERM)
    started(run)
    assert phase(run) is Phase.ENDING
    assert tree.signals("signal_workers") == [signal.SIGTERM, signal.SIGTERM]


def test_an_agent_that_is_faster_than_we_costs_no_verdict(run: Any) -> None:
    checked(run)
    started(run)
    failed(run)
    run._on_agent_exit()
    assert run._outcome.verdicts == [CRASH]


def test_an_agent_that_ends_for_no_rank_is_judged_itself(run: Any, tree: Tree) -> None:
    checked(run)
    tree.agent_exit = Exit(1, 0.0)  # type: ignore[assignment]
    run._on_agent_exit()
    assert run._outcome.verdicts == [INFRA]


def happens_next(run: Any, seconds: float) -> None:
    """What is due at the latest in so many seconds happens now."""
    for action, due in list(run._timers._due.items()):
        if due <= time.monotonic() + seconds:
            del run._timers._due[action]
            action()


def all_have_failed(run: Any, attempt: int) -> None:
    started(run, attempt)
    failed(run)
    failed(run, 1)
    happens_next(run, SETTLE_S)
    assert phase(run) is Phase.CONCLUDED


def test_an_agent_that_is_blocked_in_the_store_is_not_waited_for_where_nothing_follows(run: Any, tree: Tree) -> None:
    checked(run)
    all_have_failed(run, attempt=1)
    happens_next(run, ACTS_S)
    assert tree.signals("signal_agent") == [signal.SIGKILL]
    assert run._outcome.verdicts == [CRASH]


def test_an_agent_that_is_blocked_may_come_back_where_attempts_are_left(run: Any, tree: Tree, said: list[str]) -> None:
    checked(run)
    all_have_failed(run, attempt=0)
    happens_next(run, ACTS_S)
    assert tree.signals("signal_agent") == []
    assert said == ["the agent is blocked in the rendezvous, of which no answer comes: it is ended in 600 s"]
    happens_next(run, 600.0)
    assert tree.signals("signal_agent") == [signal.SIGKILL]


@pytest.mark.parametrize("by", [{"event": "stopping"}, {"event": "reaped", "pid": 100, "code": 1}])
@pytest.mark.parametrize("after", ["at once", "later"])
def test_an_agent_that_acts_is_left_alone(
    after: str, by: dict[str, Any], run: Any, tree: Tree, said: list[str]
) -> None:
    checked(run)
    all_have_failed(run, attempt=0)
    if after == "later":
        happens_next(run, ACTS_S)
    os.write(tree.to_us, json.dumps(by).encode() + b"\n")
    run._on_agent_events()
    happens_next(run, 600.0)
    assert tree.signals("signal_agent") == []
    assert len(said) == (after == "later")


def test_a_fault_in_one_event_loses_none_behind_it(run: Any, tree: Tree, said: list[str]) -> None:
    def suspect(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    checked(run)
    started(run)
    object.__setattr__(run._stages, "suspect", suspect)
    os.write(tree.to_us, b'{"event": "exit", "pid": 100, "code": 1, "t": 0.0}\n{"event": "succeeded"}\n')
    run._on_agent_events()

    assert run._outcome.succeeded
    assert phase(run) is Phase.INCIDENT
    assert run._conclude_once_settled in run._timers.take() or run._timers.wait(None) is not None
    assert any("can't start new thread" in line for line in said)

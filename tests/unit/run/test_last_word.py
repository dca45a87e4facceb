"""Which verdict stands when ranks end that had been seen to hang."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from said import Said

from safelaunch.diagnosis.crash import aborted
from safelaunch.model import Case, Evidence, Incident, Verdict, WorkerGroup
from safelaunch.run.conclude import Conclusions, Found, Urgent
from safelaunch.run.findings import Findings
from safelaunch.run.hang import Hangs
from safelaunch.run.history import History
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.job_result import Met
from safelaunch.run.judge import Judge
from safelaunch.run.restarts import Restarts
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.hang import Notice


def verdict(code: str, *culprits: int, waiting: tuple[int, ...] = ()) -> Verdict:
    return Verdict(code=code, slug="s", kind="crash", summary="it timed out", culprit_ranks=culprits, waiting=waiting)


TOLD = verdict("SL307", 3, waiting=(0, 1, 2))


@pytest.mark.parametrize(
    ("found", "told", "stands"),
    [
        (verdict("SL414", 1), TOLD, TOLD),  # the same wait, and it was looked at while it lasted
        (verdict("SL414", 1), None, verdict("SL414", 1)),
        (verdict("SL412"), TOLD, TOLD),
        (verdict("SL401", 1), TOLD, verdict("SL401", 1)),
        (verdict("SL406", 0, 2), TOLD, TOLD),  # NCCL's watchdog aborts those who wait
        (verdict("SL406", 3), TOLD, verdict("SL406", 3)),
    ],
)
def test_what_was_told_of_a_wait_stands_where_the_wait_timed_out(
    found: Verdict, told: Verdict | None, stands: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []

    def last_word(because: str, exit_code: int | None) -> Verdict | None:
        reasons.append(because)
        return dataclasses.replace(told, exit_code=exit_code) if told is not None and exit_code is not None else told

    console = Said()
    judge = Judge(console)
    monkeypatch.setattr(judge, "verdict", lambda facts: found)  # noqa: ARG005
    hangs = SimpleNamespace(last_word=last_word, told=told, folder="incident-0")
    endings = SimpleNamespace(told=None)
    incidents = Incidents(str(tmp_path), console, Findings())
    plan = SimpleNamespace(restart_hangs=True, spare_nodes=0, torchrun={"max_restarts": 0})
    alone = JobNodes("", judge, console)
    conclusions = Conclusions(
        cast("Any", plan),
        console,
        incidents,
        judge,
        ThisNode(),
        cast("Any", hangs),
        cast("Any", endings),
        alone,
        Restarts(cast("Any", plan), console),
        History(cast("Any", plan), {}, kept=False),
    )
    ended = conclusions.conclude(Incident("exit", 0, (0,), 1.0), WorkerGroup(0, 2, 2), Urgent())

    assert (ended.code, ended.culprit_ranks) == (stands.code, stands.culprit_ranks)
    assert ended.exit_code == found.exit_code  # they have ended themselves: 124 is for runs that were ended
    assert reasons == (["the wait ended when it timed out"] if told is not None and stands == told else [])
    assert incidents.folder_of(ended) == ("incident-0" if reasons else str(tmp_path / "incident-0"))
    assert console.lines == []


def test_what_was_told_of_a_lost_node_is_not_written_a_second_time(tmp_path: Path) -> None:
    lost = dataclasses.replace(verdict("SL604"), kind="infra", host="node-a", summary="it has been silent for 14 s")
    facts = Case(Incident("hang", 0, (), 1.0), "node-a", 4, ())
    hangs = SimpleNamespace(
        has_told=lambda end: end is lost, told_facts=facts, evidence=(), folder=str(tmp_path / "one")
    )
    console = Said()
    incidents = Incidents(str(tmp_path), console, Findings())
    plan = SimpleNamespace(restart_hangs=True, spare_nodes=0, torchrun={"max_restarts": 0})
    nodes = SimpleNamespace(end=lost, tell_end=lambda _: None)
    conclusions = Conclusions(
        cast("Any", plan),
        console,
        incidents,
        Judge(console),
        ThisNode(),
        cast("Any", hangs),
        cast("Any", None),
        cast("Any", nodes),
        Restarts(cast("Any", plan), console),
        History(cast("Any", plan), {}, kept=False),
    )
    ended = conclusions.conclude(Incident("hang", 0, (), 1.0), WorkerGroup(0, 4, 2), Urgent())
    assert ended is lost
    assert incidents.folder_of(ended) == str(tmp_path / "one")
    assert json.loads((tmp_path / "one" / "verdict.json").read_text())["code"] == "SL604"


@pytest.mark.parametrize("told", [None, TOLD])
def test_other_nodes_are_shown_how_ranks_waited_that_their_watchdogs_ended(
    told: Verdict | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was told here: elsewhere nothing may have been, and a case of each kind would blame who was aborted."""
    elsewhere = dataclasses.replace(verdict("SL301", 5), kind="hang", exit_code=124)
    shown: list[Case] = []
    console = Said()
    judge = Judge(console)
    monkeypatch.setattr(judge, "verdict", lambda facts: verdict("SL406", 0))  # noqa: ARG005
    gave_up = (Evidence("dump", 0, {"given_up": True}),)
    monkeypatch.setattr(Conclusions, "_own_dumps", lambda *_: gave_up)
    monkeypatch.setattr(aborted, "may_be", lambda *_: True)
    monkeypatch.setattr(aborted, "of_late_calls", lambda *_: None)
    monkeypatch.setattr(
        aborted, "as_it_was", lambda facts, _: dataclasses.replace(facts, incident=Incident("hang", 0, (), 1.0))
    )
    monkeypatch.setattr(aborted, "of_waiting", lambda *_: dataclasses.replace(verdict("SL310"), exit_code=1))
    nodes = SimpleNamespace(
        end=None, address={}, failing=lambda: None, verdict=lambda facts: shown.append(facts) or elsewhere, met=Met(),
        tell_end=lambda _: None,
    )  # fmt: skip
    plan = SimpleNamespace(restart_hangs=True, spare_nodes=0, torchrun={"max_restarts": 0}, env={})
    conclusions = Conclusions(
        cast("Any", plan),
        console,
        Incidents(str(tmp_path), console, Findings()),
        judge,
        ThisNode(),
        cast("Any", SimpleNamespace(told=told, folder=str(tmp_path / "incident-0") if told is not None else "")),
        cast("Any", SimpleNamespace(told=None)),
        cast("Any", nodes),
        Restarts(cast("Any", plan), console),
        History(cast("Any", plan), {}, kept=False),
    )
    ended = conclusions.conclude(Incident("exit", 0, (0,), 1.0), WorkerGroup(0, 8, 4), Urgent())

    assert [facts.incident.kind for facts in shown] == ["hang"]
    assert (ended.code, ended.culprit_ranks, ended.exit_code) == ("SL301", (5,), 1), console.lines


def test_what_is_written_has_the_exit_code_of_the_run(tmp_path: Path) -> None:
    # A hang's own is 124: that of runs which were ended for it.
    hang = dataclasses.replace(TOLD, kind="hang", exit_code=124)
    console = Said()
    watch = SimpleNamespace(notice=Notice(hang, 8.0, 2.0, {}))
    incidents = Incidents(str(tmp_path), console, Findings())
    hangs = Hangs(None, cast("Any", watch), console, incidents, Judge(console), ThisNode(), cast("Any", None))
    hangs.folder = str(tmp_path)

    said = hangs.last_word("the wait ended when it timed out", 1)

    written = json.loads((tmp_path / "verdict.json").read_text())
    assert said is not None
    assert (said.exit_code, written["exit_code"]) == (1, 1)
    assert written["because"] == ["the wait ended when it timed out"]


def test_what_dumps_say_here_is_more_than_that_ranks_were_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has completed after its timeout is nobody's fault, whatever the nodes see of it together."""
    facts = Case(Incident("exit", 0, (0,), 1.0), "node-0", 4, ())
    here, late = Found(facts, verdict("SL406", 0), ()), Found(facts, verdict("SL414"), ())
    monkeypatch.setattr(Conclusions, "_before_an_abort", lambda *_: late)
    conclusions = object.__new__(Conclusions)
    conclusions._nodes = cast("Any", SimpleNamespace(address={}, verdict=lambda _: verdict("SL406", 0, 2)))
    dumps = (Evidence("dump", 0, {"given_up": True}),)

    assert conclusions._over_nodes(WorkerGroup(0, 4, 2), here, dumps, None) is late

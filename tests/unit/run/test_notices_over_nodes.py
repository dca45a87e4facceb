"""What is told of ranks that wait, in a job of several nodes, while they still wait."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from said import Said

from safelaunch.model import Case, GpuState, Incident, Verdict, WorkerGroup
from safelaunch.run.findings import Findings
from safelaunch.run.hang import Hangs
from safelaunch.run.incidents import Incidents
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.hang import HangWatch, Notice

FACTS = Case(Incident("hang", 0, (), 1.0), "node-0", 4, ())
OF_ALL = Verdict(code="SL301", slug="s", kind="hang", summary="rank 3 sleeps", culprit_ranks=(3,), host="node-1")
OF_THIS = Verdict(code="SL310", slug="s", kind="hang", summary="no rank of this node is late")
TOLD_TO_END = Verdict(code="SL603", slug="s", kind="infra", summary="node-1 got SIGTERM", host="node-1")


def hangs(tmp_path: Path, nodes: object, watch: object, this_node: object, verdict: Verdict = OF_THIS) -> Hangs:
    console = Said()
    incidents = Incidents(str(tmp_path), console, Findings())
    judge = cast("Any", SimpleNamespace(verdict=lambda _: verdict, explained=lambda facts: facts))
    return Hangs(None, cast("Any", watch), console, incidents, judge, cast("Any", this_node), cast("Any", nodes))


def test_what_gpus_do_is_asked_of_all_nodes(tmp_path: Path) -> None:
    """The rank of another node is named on nodes that have GPUs as well, and theirs are shown to the others."""
    asked: list[Case] = []

    def over_all(facts: Case) -> Verdict:
        asked.append(facts)
        return OF_ALL

    watch = SimpleNamespace(notice=None, nobody_waits=False, quiet=lambda *_: 0.0, ends_in=lambda _: None)

    def looked(verdict: Verdict, *_: object, **__: object) -> bool:
        watch.notice = Notice(verdict, 9.0, 2.0, {})
        return True

    def refine(verdict: Verdict) -> None:
        watch.notice = dataclasses.replace(watch.notice, verdict=verdict)

    watch.looked, watch.refine = looked, refine
    gpus = (GpuState(0, ranks=(0,)),)
    hardware = SimpleNamespace(add_to=lambda facts: dataclasses.replace(facts, gpus=gpus), evidence=lambda: ())
    this_node = SimpleNamespace(name="node-0", hardware=lambda *_, **__: hardware)
    one = hangs(tmp_path, SimpleNamespace(verdict=over_all), watch, this_node)

    one._console.loud = -1  # Said has no terminal
    one._console.heard = lambda _verdict: None
    one._look(WorkerGroup(0, 4, 2))

    assert watch.notice.verdict.culprit_ranks == (3,)
    assert asked[-1].gpus == gpus


def test_ranks_that_wait_for_those_of_a_node_that_has_ended_since_are_ended(tmp_path: Path) -> None:
    watch = HangWatch()
    watch.notice = Notice(TOLD_TO_END, 9.0, 2.0, {})
    ended = False

    def known() -> Verdict:
        return dataclasses.replace(TOLD_TO_END, conclusive=ended)

    one = hangs(tmp_path, SimpleNamespace(from_elsewhere=known), watch, ThisNode())
    one._learn_of_nodes()  # it may be writing a checkpoint
    assert watch.ends_in(10.0) is None
    ended = True
    one._learn_of_nodes()
    assert watch.ends_in(10.0) is not None


def test_what_was_told_of_gpus_is_shown_to_the_others_at_the_end_as_well(tmp_path: Path) -> None:
    """A node that asks at the same moment, with what it reads of its own, is answered from both."""
    asked: list[Case] = []
    watch = SimpleNamespace(
        notice=Notice(OF_ALL, 9.0, 2.0, {}),
        quiet=lambda *_: 0.0,
        has_returned=lambda _: False,
        limit_passed=lambda _: True,
        end=lambda: None,
    )
    one = hangs(tmp_path, SimpleNamespace(verdict=lambda facts: asked.append(facts) or OF_ALL), watch, ThisNode())
    one._facts = dataclasses.replace(FACTS, gpus=(GpuState(0, ranks=(0,), lost=True),))

    incident = one._end(WorkerGroup(0, 4, 2), cast("Any", None))

    assert incident is not None
    assert [gpu.lost for facts in asked for gpu in facts.gpus] == [True]

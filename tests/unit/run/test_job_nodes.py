"""What a node makes of what the others say: at the hub, and elsewhere. The link is a list of what was said."""

from __future__ import annotations

import dataclasses
import queue
import signal
import time
from typing import Any, cast

import pytest
from said import Said

from safelaunch.cluster.messages import Ends, Hello, Interrupted, Judged, Look, Message, Seen, Suspect
from safelaunch.cluster.peers import LOST_S, Peers
from safelaunch.codec import to_json
from safelaunch.model import AgentEnd, Case, Exit, Incident, RankFacts, Verdict, WorkerGroup
from safelaunch.model.nodes import LostNode, Node, Nodes
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge

NODES = tuple(Node(n, f"node-{n}", f"10.0.0.{n}", 4000, 2 * n, 2) for n in range(3))
KILLED = AgentEnd(exit=Exit(-9, 1.0), workers_started=True)


class FakeLink:
    """This node's end of a link to all others, which live."""

    fault = None

    def __init__(self, me: int) -> None:
        self.peers = Peers()
        self.peers.meet(Nodes(0, me, NODES, "00"), time.monotonic())
        for node in {0, 1, 2} - {me} if me == 0 else {0}:
            assert self.peers.admits(Hello(node))
            self.peers.heard(node, time.monotonic(), 0)
        self.inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.said: list[Message] = []

    def meet(self, nodes: Nodes, _: bytes) -> None:
        self.peers.meet(nodes, time.monotonic())

    def to_hub(self, message: Message) -> None:
        self.said.append(message)

    to_all = to_hub

    def take(self, timeout: float) -> tuple[int, Message]:
        return self.inbox.get(timeout > 0, timeout or None)


def case(node: int, *, failed: str = "") -> Case:
    """Of a node whose first rank has raised `failed`, or has lost a peer; both live on where that is empty."""
    ranks = tuple(RankFacts(rank, rank % 2, 100 + rank) for rank in (2 * node, 2 * node + 1))
    return Case(Incident("exit" if failed else "hang", 0, (2 * node,), 1.0), f"node-{node}", 6, ranks)


def verdict(code: str, *culprits: int) -> Verdict:
    return Verdict(code=code, slug="s", kind="crash", summary=code, culprit_ranks=culprits, exit_code=1)


class OneNode:
    """A node of three, whose rules name rank 2 once they see that node 1 has failed."""

    def __init__(self, me: int, monkeypatch: pytest.MonkeyPatch) -> None:
        judge = Judge(Said())
        monkeypatch.setattr(judge, "verdict", self._judged)
        self.nodes = JobNodes("node-0", judge, Said(), look=lambda *_: case(me))
        self.link = FakeLink(me)
        self.nodes._link = cast("Any", self.link)
        self.nodes.follow(WorkerGroup(0, 6, 2), 0)

    @staticmethod
    def _judged(facts: Case) -> Verdict:
        known = any(2 in facts.incident.ranks and facts.incident.kind == "exit" for _ in facts.ranks)
        return verdict("SL401", 2) if known else verdict("SL412")

    def hears(self, node: int, message: Message) -> None:
        self.link.inbox.put((node, message))
        self.nodes._round(cast("Any", self.link))

    def idles(self) -> None:
        self.nodes._round(cast("Any", self.link))

    def said(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.link.said if isinstance(message, kind)]


def test_the_hub_waits_for_the_node_that_knows_who_failed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that lose a peer may fail before the supervisor of that peer knows of it."""
    hub = OneNode(0, monkeypatch)
    hub.hears(2, Suspect(1, case(2, failed="connection lost")))
    (look,) = hub.said(Look)
    hub.hears(0, Seen(look.number, case(0)))
    hub.hears(1, Seen(look.number, case(1)))  # nothing had failed there as yet
    assert not hub.said(Judged)
    hub.hears(1, Suspect(1, Case(Incident("exit", 0, (2,), 0.9), "node-1", 6, case(1).ranks)))
    (judged,) = hub.said(Judged)
    assert judged.verdict.culprit_ranks == (2,)
    assert judged.verdict.host == "node-1"
    assert set(judged.asked) == {(2, 1), (1, 1)}


def test_a_look_does_not_replace_what_a_node_has_said_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = OneNode(0, monkeypatch)
    hub.hears(1, Suspect(1, Case(Incident("exit", 0, (2,), 0.9), "node-1", 6, case(1).ranks)))
    (look,) = hub.said(Look)
    hub.hears(1, Seen(look.number, case(1)))  # it had begun to look before it failed
    hub.hears(0, Seen(look.number, case(0)))
    hub.hears(2, Seen(look.number, case(2)))
    (judged,) = hub.said(Judged)
    assert judged.verdict.culprit_ranks == (2,)


def test_a_node_that_fails_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneNode(1, monkeypatch)
    one.nodes.failing()
    one.hears(0, Look(1))
    assert not one.said(Seen)


@pytest.mark.parametrize("hub_knows_first", [True, False])
def test_an_agent_that_is_killed_is_why_the_ranks_of_others_fail(
    hub_knows_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, hub = OneNode(1, monkeypatch), OneNode(0, monkeypatch)
    found = one.nodes.of_agent(KILLED)
    assert found.summary == "the agent of node-1 was killed by SIGKILL; its ranks ended with it"
    assert (found.code, found.host, found.exit_code) == ("SL601", "node-1", 75)
    (ends,) = one.said(Ends)
    told: tuple[tuple[int, Message], ...] = ((1, ends), (2, Suspect(1, case(2, failed="connection lost"))))
    for node, message in told if hub_knows_first else reversed(told):
        hub.hears(node, message)
    (look,) = hub.said(Look)
    for node in (0, 1, 2):
        hub.hears(node, Seen(look.number, None))
    (judged,) = hub.said(Judged)
    assert (judged.verdict.code, judged.verdict.summary) == (found.code, found.summary)


def test_an_agent_that_fails_for_a_lost_node_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneNode(1, monkeypatch)
    one.nodes._interrupted = verdict("SL603")
    failed = AgentEnd(phase="run", type="RendezvousConnectionError", message="it failed", workers_started=True)
    assert one.nodes.of_agent(failed).code == "SL603"
    assert not one.said(Ends)


def test_a_node_that_was_told_to_end_is_why_others_fail_and_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one, hub = OneNode(1, monkeypatch), OneNode(0, monkeypatch)
    one.nodes.interrupted(signal.SIGTERM)
    (told,) = one.said(Interrupted)
    hub.hears(1, told)
    assert hub.said(Interrupted) == [told]  # passed on, once
    assert hub.nodes.ends({0: 100.0}, time.monotonic()) is None  # it may be writing a checkpoint
    hub.hears(2, Suspect(1, case(2, failed="connection lost")))
    (look,) = hub.said(Look)
    one.hears(0, look)
    (seen,) = one.said(Seen)
    assert seen.case is None  # that its ranks end says nothing
    for node in (0, 1, 2):
        hub.hears(node, Seen(look.number, None))
    (judged,) = hub.said(Judged)
    assert judged.verdict.summary == "node-1 got SIGTERM, which ends ranks 2 and 3"
    assert (judged.verdict.code, judged.verdict.host, judged.verdict.exit_code) == ("SL603", "node-1", 75)
    assert not judged.verdict.conclusive
    hub.link.peers.left(2, time.monotonic())
    assert [known.conclusive for known in [hub.nodes.from_elsewhere()] if known] == [False]
    hub.link.peers.left(1, time.monotonic())  # its ranks have ended: who waits for them waits for ever
    assert [known.conclusive for known in [hub.nodes.from_elsewhere()] if known] == [True]


def test_what_somebody_at_a_keyboard_ends_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneNode(1, monkeypatch)
    one.nodes.interrupted(signal.SIGINT)
    (told,) = one.said(Interrupted)
    assert told.verdict.exit_code == 130


def test_a_node_whose_rank_the_others_end_for_has_not_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneNode(1, monkeypatch)
    one.hears(0, Ends(verdict("SL408", 2, 3)))
    denied = one.nodes.denied({2, 3})
    assert denied is not None
    assert denied.code == "SL408"
    assert one.nodes.denied({4, 5}) is None  # all of its ranks had done their work


def test_a_node_that_hears_nobody_blames_nobody_else_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is silent, and the next one has not answered: this node may be the one that is cut off."""
    one = OneNode(2, monkeypatch)
    peers = one.link.peers
    heard = time.monotonic() - LOST_S - 1
    peers._known[0].heard = peers._heard = heard
    peers.look(time.monotonic())
    assert peers.lost
    monkeypatch.setattr("safelaunch.run.job_nodes.VERDICT_S", 0.1)
    found = one.nodes.verdict(case(2, failed="connection lost"))
    assert found is not None
    assert found.summary.startswith("node-2 has lost all other nodes at the same time (node-0, node-1")
    assert found.host == "node-2"


def test_a_hub_that_has_just_gone_is_why_ranks_lose_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection closes in the moment in which its ranks die, and those of others fail for it."""
    one = OneNode(2, monkeypatch)
    one.link.peers.closed(0, time.monotonic())
    found = one.nodes.verdict(case(2, failed="connection lost"))
    assert found is not None
    assert found.summary.startswith("node-0 has gone without a goodbye (ranks 0 and 1)")


def test_a_node_that_the_others_have_given_up_says_so_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still, and finds the others gone when it goes on."""
    one = OneNode(2, monkeypatch)
    one.link.peers.told((LostNode(2, 9.2),))
    one.link.peers.left(0, time.monotonic())
    failed = AgentEnd(phase="run", type="RendezvousConnectionError", message="it failed", workers_started=True)
    for found in (one.nodes.of_agent(failed), one.nodes.verdict(case(2, failed="connection lost"))):
        assert found is not None
        assert found.summary == "the other nodes have given node-2 up, after 9 s without a word of it"
        assert (found.code, found.host, found.exit_code) == ("SL604", "node-2", 75)


def test_a_node_that_is_heard_again_has_not_been_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneNode(2, monkeypatch)
    one.link.peers.told((LostNode(2, 9.2),))
    now = time.monotonic()
    one.link.peers.clock(now - 0.1, now, now)
    one.link.peers.left(0, now)
    monkeypatch.setattr("safelaunch.run.job_nodes.GOODBYE_S", 0.0)
    assert one.nodes.verdict(case(2, failed="connection lost")) is None


def test_a_node_that_slept_while_the_others_ended_warns_of_no_missing_link(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    one = OneNode(1, monkeypatch)
    one.nodes._console = said
    one.nodes._met = time.monotonic() - 100.0
    one.link.peers.left(0, time.monotonic())  # so this node is the hub, and node 2 has not come to it
    one.idles()
    assert said.lines == []


def test_one_node_says_all_also_where_it_ends_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    one, hub = OneNode(1, monkeypatch), OneNode(0, monkeypatch)
    found = dataclasses.replace(verdict("SL401", 2), traceback="ValueError: a bad sample")
    for node in (one, hub):
        node.hears(0, Ends(found))
    one.link.peers.left(0, time.monotonic())
    assert one.link.peers.is_hub
    assert not one.nodes.as_said_here(found).traceback
    assert hub.nodes.as_said_here(found) == found
    lost = dataclasses.replace(verdict("SL604"), kind="infra", remedy="start again without node-2")
    two = OneNode(1, monkeypatch)
    two.hears(0, Ends(lost))
    assert two.nodes.as_said_here(lost) == lost


def test_what_is_known_stays_when_a_node_is_added_to_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    node = OneNode(1, monkeypatch)
    node.nodes.meet(to_json(Nodes(3, 1, NODES, "00" * 32)))
    node.hears(0, Ends(verdict("SL401", 2)))
    node.nodes.meet(to_json(Nodes(3, 1, NODES, "00" * 32)))
    assert node.nodes.end is not None
    node.nodes.meet(to_json(Nodes(2, 1, NODES, "00" * 32)))  # of a round before
    assert node.nodes.end is not None
    node.nodes.meet(to_json(Nodes(4, 1, NODES, "00" * 32)))
    assert node.nodes.end is None

"""What the agents of a round tell each other in its store: where their supervisors listen, and the job's key."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from torch.distributed import HashStore

from safelaunch.agent import nodes
from safelaunch.codec import checked
from safelaunch.model.nodes import Node, Nodes

PATIENCE_S = 60.0  # of a test: much longer than any of it takes


class Agent:
    """The agent of one node: what it posts to its supervisor."""

    def __init__(self, rank: int, count: int, store: HashStore) -> None:
        self.rounds, self.posted = [0], queue.SimpleQueue[tuple[str, dict[str, Any]]]()
        node = Node(rank, f"node-{rank}", f"10.0.0.{rank}", 4000 + rank, 2 * rank, 2)
        arguments = (cast("Any", self), store, node, count, self.rounds)
        self.thread = threading.Thread(target=nodes._meet, args=arguments, daemon=True)
        self.thread.start()

    def post(self, event: str, **fields: Any) -> None:
        self.posted.put((event, fields))

    def met(self) -> Nodes:
        event, fields = self.posted.get(timeout=PATIENCE_S)
        assert event == "nodes", fields
        return checked(Nodes, fields["nodes"])

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.met().nodes]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[HashStore]:
    monkeypatch.setattr(nodes, "AGAIN_S", 0.05)
    yield HashStore()
    monkeypatch.setattr(nodes, "ALL_S", 0.0)  # ends the threads


def test_all_nodes_get_the_same_once_all_have_written(store: HashStore) -> None:
    agents = [Agent(rank, 3, store) for rank in range(3)]
    met = [agent.met() for agent in agents]
    assert {tuple(node.port for node in one.nodes) for one in met} == {(4000, 4001, 4002)}
    assert len({one.key for one in met}) == 1
    assert len(met[0].key) == 64
    assert [one.me for one in met] == [0, 1, 2]
    for agent in agents:
        agent.thread.join(PATIENCE_S)
        assert agent.posted.empty()


@pytest.mark.parametrize("torchrun", [0, 1, 2])
def test_a_node_that_runs_torchrun_is_not_waited_for(
    torchrun: int, store: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SOON_S", 0.2)
    assert nodes.ALL_S > nodes.SOON_S
    agents = [Agent(rank, 3, store) for rank in range(3) if rank != torchrun]
    expected = [4000 + rank if rank != torchrun else 0 for rank in range(3)]
    assert [agent.ports for agent in agents] == [expected] * 2


def test_a_node_that_comes_late_is_added(store: HashStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "SOON_S", 0.1)
    agents = [Agent(rank, 3, store) for rank in (0, 2)]
    assert [agent.ports for agent in agents] == [[4000, 0, 4002]] * 2
    agents.append(Agent(1, 3, store))
    assert [agent.ports for agent in agents] == [[4000, 4001, 4002]] * 3


def test_nothing_is_told_of_a_round_that_is_over(store: HashStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "SOON_S", 0.1)
    first = Agent(0, 2, store)
    first.rounds.append(1)
    assert Agent(1, 2, store).ports == [4000, 4001]
    first.thread.join(PATIENCE_S)
    assert first.posted.empty()


class GoneStore:
    """The store of a node that has just ended."""

    def add(self, *_: Any) -> int:
        raise RuntimeError("Broken pipe")


def test_a_store_that_is_gone_costs_the_link_and_one_line() -> None:
    event, fields = Agent(0, 2, cast("Any", GoneStore())).posted.get(timeout=PATIENCE_S)
    assert event == "degraded"
    assert fields["missing"].endswith("RuntimeError: Broken pipe")

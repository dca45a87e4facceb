"""A node takes itself out of torch's rendezvous: the others go on, and nothing is closed for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.elastic.rendezvous import utils as rendezvous_utils
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from safelaunch.agent import leaving
from safelaunch.agent.leaving import Leave, Leaving


class Ended(Exception):
    """The agent's process would be gone."""


class FakeChannel:
    def __init__(self) -> None:
        self.posted: list[str] = []
        self.words: dict[str, Callable[[], None]] = {}

    def on_command(self, word: str, callback: Callable[[], None]) -> None:
        self.words[word] = callback

    def post(self, event: str, *, stays: str) -> None:
        assert event == "leaves"
        self.posted.append(stays)


class Agent:
    """The agent of a node; they share a store."""

    def __init__(self, store: Any, nodes: tuple[int, int], name: str, endpoint: str = "elsewhere:29400") -> None:
        self.channel = FakeChannel()
        config = SimpleNamespace(rdzv_backend="c10d", rdzv_configs={}, rdzv_endpoint=endpoint)
        self.leaving = Leaving(self.channel, config)  # type: ignore[arg-type]
        backend = C10dRendezvousBackend(store, "job")
        self.handler: Any = DynamicRendezvousHandler.from_backend("job", store, backend, *nodes, local_addr=name)
        self.handler._get_world = lambda: (1, 2)  # whose TCPStore for the workers is not needed here
        self.leaving._nodes, self.leaving._round = nodes[1], 0
        self.run = self.handler._op_executor.run

    def joins(self) -> None:
        until = self.handler._get_deadline(self.handler._settings.timeout.join)
        self.run(dynamic_rendezvous._RendezvousJoinOp(), until)

    @property
    def state(self) -> Any:
        self.handler._state_holder._last_sync_time = -1
        self.handler._state_holder.sync()
        return self.handler._state_holder.state

    def who(self) -> list[str]:
        return sorted(node.addr for node in self.state.participants)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    original = DynamicRendezvousHandler.next_rendezvous
    monkeypatch.setattr(dynamic_rendezvous, "_delay", lambda **_: threading.Event().wait(0.01))
    monkeypatch.setattr(rendezvous_utils, "_matches_machine_hostname", lambda host: host == "here")

    def leave(_: int) -> None:
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    yield dist.HashStore()
    DynamicRendezvousHandler.next_rendezvous = original  # each Leaving has put itself around it


def together(*agents: Agent) -> None:
    with ThreadPoolExecutor(len(agents)) as pool:
        done: list[Future[None]] = [pool.submit(agent.joins) for agent in agents]
    for one in done:
        one.result()


def decides(agent: Agent) -> list[str]:
    """What it says, asked to leave."""
    agent.channel.words["leave"]()
    try:
        agent.leaving.decide(agent.handler)
    except Ended:
        agent.channel.posted.append("ended")
    return agent.channel.posted


def test_who_is_not_asked_stays(store: Any) -> None:
    agent = Agent(store, (1, 2), "a")
    agent.leaving.decide(agent.handler)
    assert agent.channel.posted == []


def test_it_leaves_and_closes_nothing(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "OTHERS_S", 0.1)
    first, second, third = (Agent(store, (2, 3), name) for name in "abc")
    together(first, second, third)
    assert decides(third) == ["", "ended"]
    assert first.who() == ["a", "b"]
    assert not first.state.closed
    assert not first.state.wait_list


def test_those_who_wait_for_its_ranks_are_asked_to_restart(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "OWN_ACCORD_S", 0.0)
    first, second = Agent(store, (1, 2), "a"), Agent(store, (1, 2), "b")
    together(first, second)
    leaves = threading.Thread(target=second.run, args=(Leave(0), float("inf")))
    leaves.start()
    while not first.state.wait_list:
        assert leaves.is_alive()
    first.run(dynamic_rendezvous._RendezvousExitOp(), float("inf"))  # its agent restarts the ranks
    leaves.join(10)
    assert not leaves.is_alive()
    assert not first.state.wait_list
    assert not first.state.complete


def test_those_who_have_restarted_without_it_are_left_alone(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stood still has been given up meanwhile."""
    monkeypatch.setattr(leaving, "OWN_ACCORD_S", 0.0)
    first, second = Agent(store, (1, 2), "a"), Agent(store, (1, 2), "b")
    together(first, second)
    first.handler._state_holder.state.round += 1
    first.handler._state_holder.mark_dirty()
    first.handler._state_holder.sync()
    begun = time.monotonic()
    second.run(Leave(0), float("inf"))
    assert time.monotonic() - begun < leaving.OTHERS_S / 2
    assert (first.who(), first.state.wait_list) == (["a"], set())


@pytest.mark.parametrize(
    ("nodes", "endpoint", "why"),
    [
        ((2, 2), "elsewhere:29400", "no spare node waits, and the job needs 2 nodes"),
        ((1, 2), "here:29400", leaving.ON_IT),
    ],
)
def test_it_stays_where_the_others_cannot_go_on(nodes: tuple[int, int], endpoint: str, why: str, store: Any) -> None:
    first, second = Agent(store, nodes, "a"), Agent(store, nodes, "b", endpoint)
    together(first, second)
    assert decides(second) == [why]
    assert first.who() == ["a", "b"]


def test_a_spare_that_waits_takes_one_place_and_not_two(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "OTHERS_S", 0.1)
    agents = [Agent(store, (3, 3), name) for name in "abc"]
    together(*agents)
    spare = Agent(store, (3, 3), "d")
    spare.handler._state_holder.sync()
    spare.handler._state_holder.state.redundancy_list.add(spare.handler._this_node)
    spare.handler._state_holder.mark_dirty()
    spare.handler._state_holder.sync()
    for agent in agents[:2]:
        assert len(agent.state.redundancy_list) == 1
    assert decides(agents[1]) == ["", "ended"]
    assert decides(agents[0]) == ["no spare node waits, and the job needs 3 nodes"]


def test_a_store_that_is_gone_keeps_nobody_from_going_on(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(store, (1, 2), "a")

    def gone(*_: Any) -> None:
        raise RuntimeError("Broken pipe")

    monkeypatch.setattr(agent.handler._state_holder, "sync", gone)
    assert decides(agent) == ["the rendezvous says RuntimeError"]


def test_another_kind_of_rendezvous_lets_nobody_leave(store: Any) -> None:
    agent = Agent(store, (1, 2), "a")
    agent.handler = SimpleNamespace()
    assert decides(agent) == [leaving.NO_WAY]

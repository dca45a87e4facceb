"""Why and where ranks stop: one node, and several that agree over their link. The ranks are slots of a black box."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from said import Said

from safelaunch import black_box, black_box_reader, stop_words
from safelaunch.cluster.messages import AskStop, Held, Hold, Message, StopAt
from safelaunch.cluster.peers import Peers
from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.model.nodes import Node, Nodes
from safelaunch.run import stop_nodes, stops
from safelaunch.run.stops import Stops

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class Network:
    """The link of two nodes, of which node 0 is the hub."""

    def __init__(self, linked: bool = True) -> None:
        nodes = tuple(Node(n, f"node-{n}", f"10.0.0.{n}", 4000, 2 * n, 2) for n in range(2))
        self.inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue(), queue.SimpleQueue()]
        self.deaf: set[int] = set()
        self.links = [SimpleNamespace(peers=Peers()) for _ in nodes]
        for me, link in enumerate(self.links):
            link.peers.meet(Nodes(0, me, nodes, "00"), time.monotonic())
            link.to_hub = lambda message, me=me: self.send(me, 0, message)
            link.to_all = lambda message: [self.send(0, node, message) for node in (0, 1)]
            link.to_node = lambda node, message: self.send(0, node, message)
        if linked:
            self.join()

    def join(self) -> None:
        for me, link in enumerate(self.links):
            link.peers.heard(1 - me, time.monotonic(), 0)
            link.peers.members = (0, 1)

    def send(self, sender: int, receiver: int, message: Message) -> None:
        if receiver not in self.deaf:
            self.inboxes[receiver].put((self.links[receiver], sender, message))


class OneNode:
    """Two ranks that call `should_stop()`, and what their supervisor makes of it; `turn` is a round of its thread."""

    def __init__(self, folder: Path, network: Network | None = None, me: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        path = str(folder / "black_box")
        black_box.create(path, 2)
        self.boxes = [black_box.Writer(path, index) for index in (0, 1)]
        self.ranks = [box.stop for box in self.boxes]
        inbox = network.inboxes[me] if network is not None else queue.SimpleQueue()
        self.console = Said()
        plan = SimpleNamespace(run_dir=str(folder), grace=20.0)
        self.left: float | None = None
        end = SimpleNamespace(left_s=lambda asks: self.left if asks else None, whole_s=10_000.0)
        nodes, reader = SimpleNamespace(inboxes=SimpleNamespace(stop=inbox)), black_box_reader.Reader(path)
        self.stops = Stops(cast("Any", plan), reader, self.console, cast("Any", nodes), cast("Any", end))
        workers = tuple(WorkerProcess(index, index, os.getpid(), 0, "") for index in (0, 1))
        self.group = WorkerGroup(0, 2 if network is None else 4, 2, workers)
        self.stops._run = self.stops._look_outside = lambda: None  # type: ignore[method-assign]
        if network is not None:
            inbox.put((network.links[me], -1, None))

    def call(self, *times: int, caught: tuple[int, ...] = SIGNALS) -> None:
        for rank, count in zip(self.ranks, times, strict=True):
            rank.words[stop_words.CAUGHT] = sum(1 << signum for signum in caught)
            assert not any(rank() for _ in range(count))
        self.stops.poll(self.group)

    def turn(self) -> None:
        self.stops._round()

    @property
    def limits(self) -> list[int]:
        return [rank.words[stop_words.LIMIT] for rank in self.ranks]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "TICK_S", 0.001)
    monkeypatch.setattr(stops, "BUSY_S", 0.001)
    monkeypatch.setattr(stop_words, "SETTLE_S", 0.0)


def test_the_ranks_of_a_node_stop_at_the_first_call_that_none_of_them_has_made(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(7, 3)

    assert node.stops.ask(signal.SIGUSR1, node.group)
    node.turn()

    assert node.limits == [8, 8]
    assert node.ranks[0]() is True
    assert [node.ranks[1]() for _ in range(5)] == [False] * 4 + [True]
    told = node.stops.outcome(node.group, None)
    assert told is not None
    assert (told.by, told.call, told.stopped, told.exit_code) == ("SIGUSR1", 8, True, 75)


def test_a_signal_that_the_script_catches_is_the_scripts_but_for_sigterm(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(1, 1, caught=(signal.SIGUSR2, signal.SIGTERM))

    assert not node.stops.ask(signal.SIGUSR1, node.group)
    node.turn()
    assert node.limits == [0, 0]
    assert node.stops.ask(signal.SIGTERM, node.group)


def test_ranks_that_do_not_call_it_get_signals_as_ever(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.stops.poll(node.group)

    assert not node.stops.ask(signal.SIGTERM, node.group)
    assert not node.stops.overdue


def test_sigterm_has_a_deadline_and_repeating_it_does_not_move_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, now = OneNode(tmp_path), time.monotonic()
    node.call(1, 1)
    assert node.stops.ask(signal.SIGTERM, node.group)
    monkeypatch.setattr(time, "monotonic", lambda: now + 15.0)
    assert node.stops.ask(signal.SIGTERM, node.group)
    assert not node.stops.overdue

    monkeypatch.setattr(time, "monotonic", lambda: now + 25.0)
    assert node.stops.overdue
    assert not node.stops.ask(signal.SIGTERM, node.group)
    told = node.stops.outcome(node.group, signal.SIGTERM)
    assert told is not None
    assert (told.stopped, told.exit_code) == (False, 75)


def test_a_signal_that_came_to_a_rank_counts_for_all(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(2, 2)
    node.ranks[1].words[stop_words.ASKED] = signal.SIGUSR1

    node.turn()

    assert node.limits == [3, 3]


def test_the_end_of_the_time_is_seen_before_it_comes(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(1, 1)
    node.left = 9_000.0
    node.turn()
    node.call(1, 1)
    node.turn()
    assert node.limits == [0, 0]

    node.left = 60.0
    node.turn()

    assert node.limits == [3, 3]


def test_a_run_that_ends_before_the_call_has_not_been_stopped(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(5, 5)
    node.stops.ask(signal.SIGUSR1, node.group)
    node.turn()

    assert node.stops.outcome(node.group, None) is None


def test_what_somebody_asked_for_is_not_retried(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(1, 1)
    node.stops._want(stops.COMMAND)
    node.turn()
    assert node.ranks[0]()

    told = node.stops.outcome(node.group, None)
    assert told is not None
    assert told.exit_code == 130


def test_the_ranks_of_the_next_attempt_stop_as_well(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(4, 4)
    node.stops.ask(signal.SIGUSR1, node.group)
    node.turn()
    for rank in node.ranks:
        rank.words[stop_words.CALLS] = rank.words[stop_words.LIMIT] = 0  # as a rank clears its slot
    node.stops.poll(WorkerGroup(1, 2, 2, node.group.workers))
    node.ranks[0].words[stop_words.CALLS] = 1

    node.turn()

    assert node.limits == [2, 2]


def test_what_starts_anew_without_a_new_attempt_is_asked_anew(tmp_path: Path) -> None:
    node = OneNode(tmp_path)
    node.call(400, 400)
    node.stops.ask(signal.SIGUSR1, node.group)
    node.turn()
    for box in node.boxes:  # nodes came or went: other processes, which have cleared their slots
        black_box.HEAD.pack_into(box._memory, box._base, black_box.MAGIC, 4242, 0.0)
        box.stop.words[stop_words.CALLS], box.stop.words[stop_words.LIMIT] = 2, 0
    workers = tuple(dataclasses.replace(worker, pid=4242) for worker in node.group.workers)
    node.stops.poll(WorkerGroup(0, 2, 2, workers))

    node.turn()

    assert node.limits == [3, 3]


def test_all_nodes_stop_after_the_rank_that_is_furthest(tmp_path: Path) -> None:
    network = Network()
    first, second = (OneNode(tmp_path / str(me), network, me) for me in (0, 1))
    first.call(4, 5)
    second.call(9, 6)
    assert second.stops.ask(signal.SIGTERM, second.group)

    for _ in range(6):
        second.turn()
        first.turn()

    assert first.limits == second.limits == [10, 10]
    assert first.stops.wanted is not None
    assert first.stops.wanted.by == "SIGTERM"


def test_a_node_that_does_not_answer_is_given_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_nodes, "ANSWER_S", 0.0)
    network = Network()
    first = OneNode(tmp_path / "0", network)
    network.deaf.add(1)
    first.call(4, 4)
    assert first.stops.ask(signal.SIGTERM, first.group)

    for _ in range(6):
        first.turn()

    assert first.limits == [5 + stop_nodes.MARGIN] * 2


def test_nodes_that_are_about_to_be_linked_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_nodes, "AGAIN_S", 0.0)
    network = Network(linked=False)
    first, second = (OneNode(tmp_path / str(me), network, me) for me in (0, 1))
    first.call(4, 4)
    second.call(4, 4)
    assert first.stops.ask(signal.SIGTERM, first.group)
    for _ in range(4):
        first.turn()
    assert not first.stops.overdue

    network.join()
    for _ in range(6):
        first.turn()
        second.turn()

    assert first.limits == second.limits == [5, 5]


def test_nodes_without_a_link_do_not_stop_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_nodes, "LINK_S", 0.0)
    network = Network(linked=False)
    first = OneNode(tmp_path / "0", network)
    first.call(4, 4)
    assert first.stops.ask(signal.SIGTERM, first.group)

    for _ in range(4):
        first.turn()

    assert first.limits == [0, 0]
    assert first.stops.overdue  # the ranks get the signal itself
    assert any("should_stop() stays False: no link to node-1" in line for line in first.console.lines)


def test_ranks_go_on_where_the_hub_says_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_nodes, "HOLD_S", 0.0)
    network = Network()
    second = OneNode(tmp_path / "1", network, 1)
    second.call(1, 1)
    network.send(0, 1, Hold(1))
    second.turn()
    second.turn()
    second.turn()

    assert second.limits == [0, 0]
    assert [message for _, _, message in drained(network.inboxes[0])] == [Held(1, 1)]


def test_who_asks_late_is_told_the_same(tmp_path: Path) -> None:
    network = Network()
    first = OneNode(tmp_path / "0", network)
    first.call(2, 2)
    network.send(1, 0, AskStop("SIGUSR1"))
    for _ in range(3):
        first.turn()
    network.send(1, 0, Held(1, 6))
    for _ in range(3):
        first.turn()
    drained(network.inboxes[1])
    network.send(1, 0, AskStop("SIGTERM"))
    first.turn()

    assert [message for _, _, message in drained(network.inboxes[1])] == [StopAt(7, "SIGUSR1")]


def drained(inbox: queue.SimpleQueue[Any]) -> list[Any]:
    return [inbox.get() for _ in range(inbox.qsize())]

"""Supervisors of several nodes on the loopback interface, each with its own end of the link."""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from safelaunch.cluster.link import STRANGERS, TICK_S, Link
from safelaunch.cluster.listener import listen, make_room
from safelaunch.cluster.messages import Answer, Ends, Judged, Look, Lost, Message, Suspect
from safelaunch.model import Case, Incident, Verdict
from safelaunch.model.nodes import Node, Nodes

KEY = os.urandom(32)
PATIENCE_S = 30.0  # of a test: much longer than any of it takes


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)


@dataclass
class Job:
    links: list[Link]
    nodes: tuple[Node, ...]

    def meet(self, *members: int) -> None:
        for rank in members:
            self.links[rank].meet(Nodes(0, rank, self.nodes, ""), KEY)

    def said(self, rank: int) -> Message:
        return self.links[rank].take(PATIENCE_S)[1]


@pytest.fixture
def job() -> Iterator[Job]:
    ends = [listen("127.0.0.1") for _ in range(3)]
    links = [Link(end.socket, "127.0.0.1") for end in ends]
    for link in links:
        link.start()
    nodes = tuple(Node(rank, f"node-{rank}", "127.0.0.1", end.port, 2 * rank, 2) for rank, end in enumerate(ends))
    job = Job(links, nodes)
    try:
        yield job
    finally:
        for link in links:
            link.close()


def linked(job: Job) -> bool:
    return job.links[0].peers.linked == (1, 2) and all(job.links[rank].peers.linked == (0,) for rank in (1, 2))


def case() -> Case:
    return Case(Incident("hang", 0, (), 1.0), "node-1", 6, ())


VERDICT = Verdict(code="SL301", slug="waits", kind="hang", summary="rank 2 sleeps")


def test_what_a_node_suspects_comes_to_the_hub_and_what_the_hub_says_to_all(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    job.links[2].to_hub(Suspect(1, case()))
    assert job.said(0) == Suspect(1, case())
    job.links[0].to_all(Look(5))
    assert [job.said(rank) for rank in range(3)] == [Look(5)] * 3


def test_clocks_are_compared(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: all(job.links[rank].peers.offset_s is not None for rank in (1, 2)))
    offset = job.links[1].peers.offset_s
    assert offset is not None
    assert abs(offset) < 1.0  # of one machine


def test_what_is_said_before_a_goodbye_arrives(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    job.links[0].to_all(Ends(VERDICT))
    job.links[0].close()
    assert [job.said(rank) for rank in (1, 2)] == [Ends(VERDICT)] * 2
    eventually(lambda: all(job.links[rank].peers.gone == {0} for rank in (1, 2)))
    eventually(lambda: job.links[1].peers.linked == (2,))  # the next hub
    assert not job.links[1].peers.lost


def test_a_node_that_is_known_later_joins_without_a_break(job: Job) -> None:
    known = (job.nodes[0], job.nodes[1], Node(2))
    for rank in (0, 1):
        job.links[rank].meet(Nodes(0, rank, known, ""), KEY)
    eventually(lambda: job.links[0].peers.linked == (1,) and job.links[1].peers.linked == (0,))
    (line,) = job.links[0]._lines.values()
    job.meet(2)  # it is turned away until the hub knows of it
    job.meet(0, 1)
    eventually(lambda: linked(job))
    assert line in job.links[0]._lines.values()


def test_when_the_hub_is_known_later_all_come_to_it(job: Job) -> None:
    known = (Node(0), *job.nodes[1:])
    for rank in (1, 2):
        job.links[rank].meet(Nodes(0, rank, known, ""), KEY)
    eventually(lambda: job.links[1].peers.linked == (2,))
    job.meet(1)
    job.meet(0)
    job.meet(2)
    eventually(lambda: linked(job))
    assert not any(link.peers.lost for link in job.links)


def test_when_the_hub_is_killed_the_next_one_takes_over(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    eventually(lambda: job.links[1].peers.members == (1, 2))
    job.links[0]._order(job.links[0]._listener.close)
    job.links[0]._order(lambda: 1 / 0)  # its thread ends without a word
    eventually(lambda: job.links[1].peers.linked == (2,) and 0 in job.links[1].peers.lost)
    eventually(lambda: 0 in job.links[2].peers.lost)
    assert job.links[1].peers.lost[0].closed
    job.links[2].to_hub(Suspect(1, case()))
    assert job.said(1) == Suspect(1, case())


def test_garbage_strangers_and_slow_ones_disturb_nobody(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    address = ("127.0.0.1", job.nodes[0].port)
    with contextlib.ExitStack() as stack:
        for number in range(3 * STRANGERS):
            line = stack.enter_context(socket.create_connection(address))
            with contextlib.suppress(OSError):
                line.sendall((b"s", b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096))[number % 3])
        job.links[1].to_hub(Suspect(1, case()))
        assert job.said(0) == Suspect(1, case())
        assert len(job.links[0]._lines) <= STRANGERS + 3 + 2
    assert job.links[0].peers.linked == (1, 2)
    assert job.links[0].is_alive()


def test_a_node_with_another_key_has_no_part(job: Job) -> None:
    job.meet(0, 1)
    job.links[2].meet(Nodes(0, 2, job.nodes, ""), os.urandom(32))
    eventually(lambda: job.links[0].peers.linked == (1,))
    job.links[2].to_hub(Suspect(1, case()))
    job.links[1].to_hub(Suspect(2, case()))
    assert job.said(0) == Suspect(2, case())
    with pytest.raises(queue.Empty):
        job.links[0].take(0.0)


def test_a_new_attempt_begins_anew(job: Job) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    job.nodes = job.nodes[:2]
    again = os.urandom(32)
    for rank in (0, 1):
        job.links[rank].meet(Nodes(1, rank, job.nodes, ""), again)
    eventually(lambda: job.links[0].peers.linked == (1,) and job.links[1].peers.linked == (0,))
    assert not job.links[0].peers.lost


class Read(queue.SimpleQueue[tuple[int, Message]]):
    """An inbox whose reader is quicker: it has taken the last message whenever somebody asked whether one is there."""

    def empty(self) -> bool:
        was_empty = super().empty()
        while not super().empty():
            self.get_nowait()
        return was_empty


def test_a_new_attempt_waits_for_no_message_that_somebody_else_has_taken(job: Job) -> None:
    job.links[1]._inbox = Read()
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    job.links[1]._inbox.put((0, Look(1)))
    job.meet(0, 1, 2)
    done = threading.Event()
    job.links[1]._order(done.set)
    assert done.wait(PATIENCE_S)


def test_a_node_comes_back_while_strangers_hold_all_places(job: Job) -> None:
    """They say nothing, and have no key: a healthy node must not be lost for them."""
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    with contextlib.ExitStack() as stack:
        for _ in range(3 * STRANGERS):
            stack.enter_context(socket.create_connection(("127.0.0.1", job.nodes[0].port)))
        eventually(lambda: sum(line.node is None for line in list(job.links[0]._lines.values())) == STRANGERS + 3)
        before = job.links[1]._uplink
        assert before is not None
        job.links[1]._order(lambda: job.links[1]._drop(before))
        job.links[1].to_hub(Suspect(1, case()))  # of nobody: there is no hub yet
        eventually(lambda: job.links[1]._uplink not in (None, before) and not job.links[1]._uplink.dialling)
        job.links[1].to_hub(Suspect(2, case()))
        assert job.said(0) == Suspect(2, case())
        assert not job.links[0].peers.lost


@pytest.mark.parametrize("message", [Look(1), Judged(VERDICT, ((0, 1),)), Answer(1e300, -1e300), Lost(())])
def test_a_node_that_is_not_the_hub_does_not_speak_as_the_hub(job: Job, message: Message) -> None:
    job.meet(0, 1, 2)
    eventually(lambda: linked(job))
    before = job.links[1]._uplink
    job.links[1].to_hub(message)
    eventually(lambda: job.links[1]._uplink not in (None, before))  # the hub has closed it
    job.links[2].to_hub(Suspect(2, case()))
    assert job.said(0) == Suspect(2, case())
    assert job.links[0].peers.offset_s is None


def test_the_node_of_the_endpoint_listens_at_that_address_alone() -> None:
    found = listen("127.0.0.1")
    with found.socket as listener:
        assert found.ip == ""  # a loopback address is told to nobody: the others come by the endpoint's name
        assert listener.getsockname()[0] == "0.0.0.0"


class Counting(Link):
    accepted = 0

    def _accept(self) -> None:
        self.accepted += 1
        super()._accept()


def test_without_descriptors_nobody_is_let_in_nor_is_a_core_burnt_and_later_all_are() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    end = listen("127.0.0.1")
    link = Counting(end.socket, "127.0.0.1")
    link.start()
    with contextlib.ExitStack() as stack:
        stack.callback(link.close)
        link.meet(Nodes(0, 0, (Node(0, port=end.port), Node(1, port=1)), ""), KEY)
        eventually(lambda: link.peers.is_hub)
        line = stack.enter_context(socket.socket())
        spare = os.dup(0)
        os.close(spare)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, before[1]))
        line.connect(("127.0.0.1", end.port))
        eventually(lambda: link.accepted > 2)
        began, so_far = time.monotonic(), link.accepted
        time.sleep(4 * TICK_S)
        assert link.accepted - so_far <= 2 + (time.monotonic() - began) / TICK_S
        assert not link._lines
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        line.settimeout(PATIENCE_S)
        assert line.recv(9) == b"safelaunc"


def test_a_hub_has_room_for_a_connection_to_each_node() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        make_room(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 512
        make_room(1024)
        assert 1024 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

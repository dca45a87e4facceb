"""Dialling nodes, with as many threads as there may be."""

from __future__ import annotations

import socket
import threading

import pytest

from safelaunch.preflight.between.dialing import MOST_AT_ONCE, Listener, dial, dial_all
from safelaunch.preflight.between.facts import Place


def listeners(count: int) -> dict[int, Place]:
    """Nodes that listen on this machine, by rank; the seats are others."""
    found = {}
    for rank in range(count):
        listener = Listener()
        listener.seat = rank + 100
        found[rank] = Place(rank, listener.seat, "127.0.0.1", listener.port)
    return found


def test_all_are_dialled_and_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    places = listeners(3)
    many = {rank: Place(rank, places[rank % 3].seat, "127.0.0.1", places[rank % 3].port) for rank in range(100)}
    started = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    dials = dial_all(7, many)
    assert [dial.dst for dial in dials] == list(many)
    assert not any(dial.error for dial in dials)
    assert started.count("dial") < MOST_AT_ONCE


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    places = listeners(2)

    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert [(dial.dst, dial.error) for dial in dial_all(7, places)] == [(0, ""), (1, "")]


def test_a_node_that_is_gone_and_one_that_sits_elsewhere(free_port: int) -> None:
    place = listeners(1)[0]
    assert "refused" in dial(7, Place(0, 0, "127.0.0.1", free_port)).error
    assert dial(7, Place(0, 5, "127.0.0.1", place.port)).error == "something else answers there"


@pytest.mark.parametrize(
    "answer",
    [
        b"[1]\n",
        b"",
        b'{"seat": 1}\n',
        b'{"seat": 1, "time": "now"}\n',
        b'{"seat": 1, "time": NaN}\n',
        b"[" * 100_000,  # a line that does not end, nested deeper than a parser follows
    ],
    ids=["list", "nothing", "no time", "text", "no number", "endless"],
)
def test_another_program_that_listens_there(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        assert dial(7, Place(0, 1, "127.0.0.1", server.getsockname()[1])).error == "something else answers there"

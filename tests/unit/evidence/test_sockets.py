"""What connections carry, as the kernel counts it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from safelaunch import procfs
from safelaunch.evidence import sockets
from safelaunch.model import Evidence, Incident, WorkerProcess


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with one, other:
            yield one, other


def look() -> Evidence:
    process = procfs.read(os.getpid())
    assert process is not None
    worker = WorkerProcess(0, 0, process.pid, process.start, "", "")
    return sockets.collect(Incident("exit", 0, (0,), 0.0), worker, time.monotonic() + 1)


def test_what_is_sent_and_received_is_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    before = look()
    if not before.data or not before.data["bytes"]:
        pytest.skip("this kernel does not tell of connections")
    one.sendall(bytes(100_000))
    left = 100_000
    while left:
        left -= len(other.recv(left))
    after = look()

    assert after.data is not None
    seconds = after.data["t"] - before.data["t"]
    assert 100_000 <= sockets.rate(before, after) * seconds <= 250_000  # both ends are ours


def test_an_idle_connection_carries_nothing(pair: tuple[socket.socket, socket.socket]) -> None:  # noqa: ARG001
    assert sockets.rate(look(), look()) == 0.0


def test_a_look_alone_says_nothing() -> None:
    assert sockets.rate(None, look()) == 0.0
    assert sockets.rate(Evidence(sockets.SOURCE, 0, unavailable="not finished after 1 s"), look()) == 0.0

"""Nodes of a Slurm step tell each other their rendezvous ids, and wait for nobody long."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from safelaunch.model import Finding, Origin, Settings, Value
from safelaunch.run import rendezvous_names
from safelaunch.run.rendezvous_names import differing


@pytest.fixture(autouse=True)
def own_port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.create_server(("", 0)) as free:
        number: int = free.getsockname()[1]
    monkeypatch.setattr(rendezvous_names, "port", lambda _name: number)
    return number


def node(number: int, name: str, *, nodes: int = 2, source: str = "flag", backend: str = "c10d") -> Finding | None:
    values = {"rdzv_id": Value(name, Origin(source)), "rdzv_backend": Value(backend, Origin("flag"))}  # type: ignore[arg-type]
    settings = Settings({**values, "nnodes": Value(str(nodes), Origin("flag"))}, {})
    hosts = ",".join(["localhost", *(f"gpu{n}" for n in range(1, nodes))])
    step = {
        "SLURM_JOB_ID": "812",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_NODEID": str(number),
    }
    return differing(settings, {**step, "SLURM_STEP_NUM_TASKS": str(nodes), "SLURM_STEP_NODELIST": hosts})


def all_of(*names: str) -> list[Finding | None]:
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(lambda one: node(one[0], one[1], nodes=len(names)), enumerate(names)))


def test_nodes_with_one_id_go_on() -> None:
    assert all_of("mine", "mine", "mine") == [None, None, None]


def test_each_node_learns_that_the_ids_differ() -> None:
    found = all_of("4711", "815", "4711")

    assert len({str(one) for one in found}) == 1
    assert found[0] is not None
    assert (found[0].code, found[0].severity) == ("SL170", "error")
    assert found[0].because == ("localhost: --rdzv-id 4711", "gpu1: --rdzv-id 815", "gpu2: --rdzv-id 4711")


def test_a_node_that_does_not_come_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_names, "ARRIVE_S", 0.3)
    assert node(0, "4711") is None
    assert node(1, "4711") is None


def test_what_others_send_to_the_port_is_no_reason(own_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_names, "ARRIVE_S", 1.0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(node, 0, "4711")
        for sent in (b"GET / HTTP/1.0\r\n\r\n", b'[[],"x"]\n', b'[7,"x"]\n'):
            until = time.monotonic() + 5
            while True:
                try:
                    with socket.create_connection(("localhost", own_port)) as stranger:
                        stranger.sendall(sent)
                    break
                except OSError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.02)
        assert first.result() is None


@pytest.mark.parametrize(("source", "backend"), [("scheduler", "c10d"), ("default", "c10d"), ("flag", "static")])
def test_only_an_id_that_was_chosen_is_asked_for(source: str, backend: str) -> None:
    assert node(0, "x", source=source, backend=backend) is None

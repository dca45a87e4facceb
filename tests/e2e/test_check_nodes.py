"""`safelaunch check` on two and three nodes, one of them bad: network namespaces, real sockets, real collectives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netns
import pytest

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]


@pytest.fixture
def hosts(rig: netns.Hosts) -> Iterator[netns.Hosts]:
    yield rig
    rig.heal()


def between(report: Any) -> list[Any]:
    return [finding for finding in report["findings"] if finding["code"] >= "SL160"]


def faults(reports: list[Any]) -> list[Any]:
    """What is wrong, as all nodes say it."""
    first, *others = [
        [finding for finding in between(report) if finding["severity"] not in ("ok", "note")] for report in reports
    ]
    assert all(other == first for other in others), (first, others)
    return first


def only(reports: list[Any]) -> Any:
    (finding,) = faults(reports)
    return finding


def test_three_healthy_nodes(hosts: netns.Hosts, tmp_path: Path) -> None:
    begin = time.monotonic()
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path)

    assert faults(reports) == []
    asked = {*(f"SL16{digit}" for digit in range(7)), "SL169", "SL170"}
    assert {finding["code"] for finding in between(reports[0])} == asked
    assert all(between(report) == between(reports[0]) for report in reports)
    assert time.monotonic() - begin < 60  # 6 s on two idle cores


@pytest.mark.long
def test_three_healthy_nodes_without_ranks_exchange_data(hosts: netns.Hosts, tmp_path: Path) -> None:
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=("--no-ranks", "--full"))

    # Three nodes on two cores, which may have other work: a speed may be in doubt, and nothing else.
    assert {(finding["code"], finding["severity"]) for finding in faults(reports)} <= {
        ("SL167", "warning"),
        ("SL168", "warning"),
    }
    assert {"SL167", "SL168"} <= {finding["code"] for finding in between(reports[0])}


def test_the_port_is_free_right_after(hosts: netns.Hosts, tmp_path: Path) -> None:
    listen = "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);" \
             " s.bind(('', 29400)); s.listen(); print('bound')"  # fmt: skip
    hosts.check(1, 2, nodes=2, cwd=tmp_path)

    hosts.inside(1, netns.sys.executable, "-c", listen)


@pytest.mark.parametrize("bad", [pytest.param(0, marks=pytest.mark.long), 1, pytest.param(2, marks=pytest.mark.long)])
def test_another_version_of_torch_among_three(hosts: netns.Hosts, tmp_path: Path, bad: int) -> None:
    finding = only(hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, SAFELAUNCH_PROBE_FAULT=f"version@{bad}"))

    assert (finding["code"], finding["severity"]) == ("SL161", "error")
    assert finding["where"] == f"node {hosts.name(bad + 1)} (rank {bad})"
    assert "torch 0.0.1" in finding["summary"]


def test_of_two_nodes_it_cannot_be_told_whose_version_is_wrong(hosts: netns.Hosts, tmp_path: Path) -> None:
    finding = only(hosts.check(1, 2, nodes=2, cwd=tmp_path, SAFELAUNCH_PROBE_FAULT="version@1"))

    assert finding["code"] == "SL161"
    assert "cannot tell which is wrong" in finding["because"][0]
    assert hosts.name(1) in finding["where"]
    assert hosts.name(2) in finding["where"]


@pytest.mark.long
def test_a_clock_that_is_off(hosts: netns.Hosts, tmp_path: Path) -> None:
    finding = only(hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, SAFELAUNCH_PROBE_FAULT="clock@1"))

    assert (finding["code"], finding["severity"]) == ("SL165", "warning")
    assert finding["summary"] == f"the clock of node {hosts.name(2)} (rank 1) is 5.0 s ahead of the others"


@pytest.mark.parametrize("bad", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_firewall_before_one_of_three(hosts: netns.Hosts, tmp_path: Path, bad: int) -> None:
    hosts.drop_high_ports(bad)
    finding = only(hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=("--full",)))

    assert (finding["code"], finding["severity"]) == ("SL166", "error")
    assert finding["summary"] == f"node {hosts.name(bad)} (rank {bad - 1}) cannot be reached by any other node"
    assert "a firewall drops it" in finding["because"][0]


@pytest.mark.long
def test_a_firewall_between_two(hosts: netns.Hosts, tmp_path: Path) -> None:
    hosts.drop_high_ports(2)
    finding = only(hosts.check(1, 2, nodes=2, cwd=tmp_path))

    assert finding["summary"] == f"node {hosts.name(2)} (rank 1) cannot be reached by node {hosts.name(1)} (rank 0)"
    assert "cannot tell" in finding["because"][-1]


@pytest.mark.long
def test_the_ranks_have_a_network_of_their_own(hosts: netns.Hosts, tmp_path: Path) -> None:
    """What a firewall drops where the nodes meet does not matter, where the ranks are told to take another network."""
    hosts.inside(1, "ip", "link", "add", "ranks0", "type", "veth", "peer", "name", "ranks0", "netns", hosts.name(2))
    try:
        for host in (1, 2):
            hosts.inside(host, "ip", "address", "add", f"10.78.0.{host}/24", "dev", "ranks0")
            hosts.inside(host, "ip", "link", "set", "ranks0", "up")
            hosts.drop_high_ports(host)
            hosts.inside(host, "nft", 'insert rule inet slt input iifname "ranks0" accept')
        assert faults(hosts.check(1, 2, nodes=2, cwd=tmp_path))[0]["code"] == "SL166"
        reports = hosts.check(1, 2, nodes=2, cwd=tmp_path, arguments=("--full",), GLOO_SOCKET_IFNAME="ranks0")
    finally:
        hosts.inside(1, "ip", "link", "delete", "ranks0")

    assert not [finding for finding in faults(reports) if finding["severity"] == "error"]
    assert {"SL166", "SL167"} <= {finding["code"] for finding in between(reports[0])}


@pytest.mark.slow
@pytest.mark.parametrize("bad", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_slow_link_of_one_of_three(hosts: netns.Hosts, tmp_path: Path, bad: int) -> None:
    hosts.do("rate", bad, 20_000)
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=("--full",))
    finding = next(finding for finding in faults(reports) if "network" in finding["summary"])

    assert (finding["code"], finding["severity"]) == ("SL167", "error")
    assert finding["where"] == f"node {hosts.name(bad)} (rank {bad - 1})"
    assert {finding["code"] for finding in faults(reports)} == {"SL167"}


@pytest.mark.slow
@pytest.mark.long
def test_the_slow_link_of_two_nodes(hosts: netns.Hosts, tmp_path: Path) -> None:
    hosts.do("rate", 2, 20_000)
    reports = hosts.check(1, 2, nodes=2, cwd=tmp_path, arguments=("--full",))
    finding = next(finding for finding in faults(reports) if finding["code"] == "SL168")

    assert finding["severity"] == "warning"
    assert "cannot tell which node or link it is" in finding["because"]


@pytest.mark.slow
@pytest.mark.long
def test_a_node_that_hangs_in_its_pairs(hosts: netns.Hosts, tmp_path: Path) -> None:
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=("--full",), SAFELAUNCH_PROBE_FAULT="hang-pair@1")
    (finding,) = [finding for finding in faults(reports) if finding["severity"] == "error"]

    assert finding["code"] == "SL167"
    assert finding["where"] == f"node {hosts.name(2)} (rank 1)"
    assert finding["summary"].endswith("cannot exchange data with good nodes")


@pytest.mark.slow
@pytest.mark.long
def test_of_two_nodes_it_cannot_be_told_which_hangs(hosts: netns.Hosts, tmp_path: Path) -> None:
    reports = hosts.check(1, 2, nodes=2, cwd=tmp_path, arguments=("--full",), SAFELAUNCH_PROBE_FAULT="hang-pair@1")
    (finding,) = [finding for finding in faults(reports) if finding["severity"] == "error"]

    assert finding["code"] == "SL168"
    assert any("cannot tell which of the two it is" in line for line in finding["because"])


@pytest.mark.long
def test_a_node_that_comes_and_never_answers(hosts: netns.Hosts, tmp_path: Path) -> None:
    deadline = ("--deadline", "20s")
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=deadline, SAFELAUNCH_PROBE_FAULT="mute@2")
    finding = only(reports[:2])

    assert (finding["code"], finding["severity"]) == ("SL160", "error")
    assert finding["summary"] == f"node {hosts.name(3)} (rank 2) came and then did not answer"


@pytest.mark.long
def test_a_node_that_goes_silent_later(hosts: netns.Hosts, tmp_path: Path) -> None:
    deadline = ("--deadline", "30s")
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=deadline, SAFELAUNCH_PROBE_FAULT="mute-later@1")
    finding = only([reports[0], reports[2]])

    assert finding["where"] == f"node {hosts.name(2)} (rank 1)"
    assert "a connection to each of the others" in finding["because"][0]


@pytest.mark.long
def test_a_node_that_never_comes(hosts: netns.Hosts, tmp_path: Path) -> None:
    finding = only(hosts.check(1, 3, nodes=3, cwd=tmp_path, arguments=("--deadline", "16s")))

    assert (finding["code"], finding["severity"]) == ("SL160", "error")
    assert finding["summary"] == "node of rank 1 never came"


@pytest.mark.long
def test_the_node_of_the_endpoint_never_comes(hosts: netns.Hosts, tmp_path: Path) -> None:
    finding = only(hosts.check(2, 3, nodes=3, cwd=tmp_path, arguments=("--deadline", "14s")))

    assert finding["code"] == "SL160"
    assert finding["because"][0].startswith(f"nothing listens at {hosts.name(1)}:29400")


@pytest.mark.slow
@pytest.mark.long
def test_a_cable_that_is_cut_on_the_way(hosts: netns.Hosts, tmp_path: Path) -> None:
    """All end at their deadline, whatever a store call waits for, and the others name the node."""
    hosts.do("drop", 3)
    reports = hosts.check(1, 2, 3, nodes=3, cwd=tmp_path, arguments=("--deadline", "16s"))

    assert only(reports[:2])["summary"] == "node of rank 2 never came"
    (alone,) = faults(reports[2:])
    assert "gives no answer" in alone["because"][0]


@pytest.mark.long
def test_an_endpoint_of_another_program(hosts: netns.Hosts, tmp_path: Path) -> None:
    """A port that is held where the meeting should be is said by the check of the port, and not a second time."""
    serve = "import socket, time; s = socket.create_server(('', 29400)); print('up', flush=True); time.sleep(90)"
    squatter = hosts.start(1, netns.sys.executable, "-c", serve, cwd=tmp_path, environ=netns.environment())
    assert squatter.stdout is not None
    assert squatter.stdout.readline() == "up\n"
    try:
        (report,) = hosts.check(1, nodes=2, cwd=tmp_path, arguments=("--deadline", "16s"))
    finally:
        squatter.kill()
        squatter.wait()
    finding = only([report])
    assert finding["severity"] == "unchecked"
    assert "port 29400 cannot be opened" in finding["because"][0]

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest
from fake_host import FakeHost, only, write

from safelaunch.model import Finding, Job
from safelaunch.preflight.machine.host import Address, Host
from safelaunch.preflight.network.port_range import RANGE, RESERVED, port_range
from safelaunch.preflight.network.reach import reach

HEAD = {"head": ("10.0.0.2",)}  # an address that FakeHost does not have
HERE = {"head": ("10.0.0.1",)}


def in_range(root: Path, port: int, low: int = 32768, high: int = 60999, reserved: str = "", **job: object) -> Finding:
    write(root, {RANGE: f"{low}\t{high}\n", RESERVED: f"{reserved}\n"})
    return only(port_range(FakeHost(root, Job(nproc=1, master_port=port, **job), names=HEAD)))  # type: ignore[arg-type]


def test_a_port_that_the_kernel_may_give_away_is_a_warning(tmp_path: Path) -> None:
    finding = in_range(tmp_path, 45000)
    assert finding.severity == "warning"
    assert "from 32768 to 60999" in finding.because[0]
    assert "such as 29500" in finding.remedy
    assert "ip_local_reserved_ports=45000" in finding.remedy


def test_a_port_outside_of_the_range_or_reserved_is_fine(tmp_path: Path) -> None:
    assert in_range(tmp_path, 29500).severity == "ok"
    assert in_range(tmp_path, 45000, reserved="8080,44990-45010").severity == "ok"
    assert only(port_range(FakeHost(tmp_path, Job(nproc=1)))).severity == "skipped"


def test_a_port_that_another_node_listens_on_is_not_ours_to_judge(tmp_path: Path) -> None:
    assert in_range(tmp_path, 45000, max_nodes=2, node_rank=1, master_addr="head").severity == "skipped"
    assert in_range(tmp_path, 45000, max_nodes=2, node_rank=0).severity == "warning"


def test_where_the_range_leaves_no_port_it_is_a_note(tmp_path: Path) -> None:
    finding = in_range(tmp_path, 29500, low=1024, high=65535)
    assert finding.severity == "note"
    assert "such as" not in finding.remedy
    assert "14500" in in_range(tmp_path, 29500, low=15000, high=65000).remedy


def dial(root: Path, answer: int, names: dict[str, tuple[str, ...]] = HEAD, **job: object) -> tuple[Finding, FakeHost]:
    shape: dict[str, object] = {"master_addr": "head", "endpoint_port": 29500, "max_nodes": 2, "node_rank": 1, **job}
    host = FakeHost(root, Job(nproc=1, **shape), names=names, answers={"10.0.0.2": answer})  # type: ignore[arg-type]
    return only(reach(host)), host


@pytest.mark.parametrize("answer", [0, errno.ECONNREFUSED])
def test_an_endpoint_that_answers_is_reached_whether_or_not_somebody_listens(tmp_path: Path, answer: int) -> None:
    finding, host = dial(tmp_path, answer)
    assert finding.severity == "ok"
    assert host.dialled == ["10.0.0.2:29500"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (errno.ETIMEDOUT, "a firewall drops it on the way, or the machine is down (ETIMEDOUT)"),
        (errno.EHOSTUNREACH, "(EHOSTUNREACH)"),
        (errno.ENETUNREACH, "no route there (ENETUNREACH)"),
    ],
)
def test_an_endpoint_out_of_reach_is_named_with_both_ends(tmp_path: Path, answer: int, words: str) -> None:
    finding, _ = dial(tmp_path, answer)
    assert finding.severity == "error"
    assert finding.summary == "port 29500 of head cannot be reached from this node"
    assert finding.because[0].startswith("10.0.0.7 -> 10.0.0.2:29500, TCP: ")
    assert words in finding.because[0]


def test_one_address_that_answers_is_enough(tmp_path: Path) -> None:
    finding, host = dial(tmp_path, errno.ETIMEDOUT, {"head": ("10.0.0.2", "10.0.0.3")})
    assert finding.severity == "ok"
    assert len(host.dialled) == 2


def test_nobody_dials_himself_or_nowhere(tmp_path: Path) -> None:
    for finding, host in (
        dial(tmp_path, 0, HERE),
        dial(tmp_path, 0, master_addr=""),
        dial(tmp_path, 0, endpoint_port=None),
    ):
        assert finding.severity == "skipped"
        assert host.dialled == []


def test_a_name_that_does_not_resolve_is_left_to_its_own_check(tmp_path: Path) -> None:
    finding, _ = dial(tmp_path, 0, {})
    assert finding.severity == "unchecked"
    assert "SL103" in finding.because[0]


def test_a_real_port_is_dialled() -> None:
    host = Host(Job(nproc=1))
    here = Address(socket.AF_INET, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert host.dial(here, port, 5.0).errno == 0
    refused = host.dial(here, port, 5.0)
    assert (refused.source, refused.errno) == ("127.0.0.1", errno.ECONNREFUSED)

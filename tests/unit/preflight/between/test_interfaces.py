"""At which address a node is dialled, where a variable names the interface of the ranks."""

from __future__ import annotations

import pytest

from safelaunch.preflight.between.interfaces import interfaces, offered

KNOWN = {
    "lo": ("127.0.0.1", "::1"),
    "eth0": ("10.0.0.1", "fe80::1"),
    "docker0": ("172.17.0.1",),
    "ib0": ("fe80::2", "fd00::2", "192.168.0.1"),
    "ib1": ("192.168.1.1",),
}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ""),
        ("ib0", "192.168.0.1"),
        ("ib", "192.168.0.1"),
        ("=ib1", "192.168.1.1"),
        ("=ib", ""),
        ("eth", ""),  # that is where it came by
        ("ib,eth", ""),
        ("^docker,lo", ""),
        ("^eth,docker,lo", "192.168.0.1"),
        ("^=eth0,docker0", "192.168.0.1"),
        ("nothing", ""),
    ],
)
def test_nccl_names_an_interface(text: str, address: str) -> None:
    assert offered({"NCCL_SOCKET_IFNAME": text}, True, ("10.0.0.1",), KNOWN) == address
    assert offered({"NCCL_SOCKET_IFNAME": text}, False, ("10.0.0.1",), KNOWN) == ""


def test_gloo_names_whole_interfaces() -> None:
    for text, address in {"ib0": "192.168.0.1", "ib": "", "eth0": "", "ib1,ib0": "192.168.0.1"}.items():
        assert offered({"GLOO_SOCKET_IFNAME": text}, False, ("10.0.0.1",), KNOWN) == address


def test_the_family_that_nccl_is_told_to_take() -> None:
    environ = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_FAMILY": "AF_INET6"}
    assert offered(environ, True, ("10.0.0.1",), KNOWN) == "fd00::2"


def test_a_node_that_knows_itself_by_a_loopback_address_stays_where_it_is() -> None:
    """127.0.1.1 in its own /etc/hosts: others know better where it is than an exclusion of docker0 tells."""
    assert offered({"NCCL_SOCKET_IFNAME": "^docker0"}, True, ("127.0.1.1",), KNOWN) == ""


def test_this_machine() -> None:
    assert "127.0.0.1" in interfaces(up=True)["lo"]

"""The interfaces that NCCL and gloo choose, by their own rules."""

from __future__ import annotations

import pytest

from safelaunch.preflight.machine.host import Address
from safelaunch.preflight.network.chosen import gloo_interface, nccl_interface

KNOWN = {
    "lo": ("127.0.0.1", "::1"),
    "docker0": ("172.17.0.1",),
    "virbr0": ("192.168.122.1",),
    "eth0": ("10.0.0.7", "fe80::1"),
    "eth1": ("10.1.0.7",),
    "down6": ("fe80::2",),
}


def without(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: addresses for name, addresses in KNOWN.items() if name not in names}


@pytest.mark.parametrize(
    ("known", "name"),
    [
        (KNOWN, "eth0"),
        ({**KNOWN, "ib0": ("10.9.0.7",)}, "ib0"),
        (without("eth0", "eth1"), "docker0"),
        (without("eth0", "eth1", "docker0"), "lo"),
        ({"virbr0": ("192.168.122.1",)}, "virbr0"),
    ],
)
def test_nccl_without_a_word(known: dict[str, tuple[str, ...]], name: str) -> None:
    assert nccl_interface({}, known) == f"{name} (NCCL's own choice)"


@pytest.mark.parametrize(
    ("asked", "name"),
    [("eth", "eth0"), ("=eth1", "eth1"), ("^docker,lo,virbr,eth0", "eth1"), ("^=eth0,lo,docker0,virbr0", "eth1")],
)
def test_nccl_by_name(asked: str, name: str) -> None:
    assert nccl_interface({"NCCL_SOCKET_IFNAME": asked}, KNOWN) == f"{name} (NCCL_SOCKET_IFNAME={asked})"


@pytest.mark.parametrize("asked", ["=eth", "ens", "down6"])
def test_a_name_that_nccl_will_not_find(asked: str) -> None:
    assert nccl_interface({"NCCL_SOCKET_IFNAME": asked}, KNOWN).startswith("none: NCCL_SOCKET_IFNAME")


def test_what_else_decides() -> None:
    assert nccl_interface({"NCCL_COMM_ID": "10.0.0.1:1234"}, KNOWN) == "unknown: NCCL_COMM_ID decides"
    assert nccl_interface({"NCCL_SOCKET_FAMILY": "AF_INET6"}, KNOWN) == "none: no interface has an address"
    assert nccl_interface({}, {}) == "none: no interface has an address"


def test_gloo() -> None:
    own = (Address(2, "10.1.0.7"),)

    assert gloo_interface({}, own, KNOWN) == "eth1 (has the address 10.1.0.7 of the host's name)"
    assert gloo_interface({"GLOO_SOCKET_IFNAME": "eth0"}, own, KNOWN) == "eth0 (GLOO_SOCKET_IFNAME)"
    assert gloo_interface({"GLOO_SOCKET_IFNAME": "eth"}, own, KNOWN).startswith("none: ")
    assert gloo_interface({}, (Address(2, "127.0.1.1"),), KNOWN) == "lo (the host's name is 127.0.1.1)"
    assert gloo_interface({}, (Address(2, "10.7.7.7"),), KNOWN).startswith("lo (the host's name is no address")
    assert gloo_interface({}, "not resolved", KNOWN) == "unknown: not resolved"

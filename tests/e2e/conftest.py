"""Surroundings that several files share: a node with GPUs, and several hosts."""

from __future__ import annotations

from collections.abc import Iterator

import fake_nvml
import netns
import pytest


@pytest.fixture(scope="session")
def cuda_node(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a node with eight GPUs; see `fake_nvml.node`."""
    environ = fake_nvml.node(tmp_path_factory.mktemp("node"))
    if environ is None:
        pytest.skip("no C compiler")
    return environ


@pytest.fixture(scope="module")
def rig() -> Iterator[netns.Hosts]:
    """Three hosts; what a test breaks it has to heal."""
    if reason := netns.why_not():
        pytest.skip(reason)
    hosts = netns.Hosts(3)
    try:
        yield hosts
    finally:
        hosts.down()

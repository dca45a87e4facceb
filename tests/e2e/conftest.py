"""Surroundings that several files share: a node with GPUs, one that runs CUDA, and several hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fake_nvml
import netns
import pytest
from fake_gpus import FakeGpus, find


@pytest.fixture(scope="session")
def cuda_node(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a node with eight GPUs; see `fake_nvml.node`."""
    environ = fake_nvml.node(tmp_path_factory.mktemp("node"))
    if environ is None:
        pytest.skip("no C compiler")
    return environ


@pytest.fixture
def fake_gpus(tmp_path: Path) -> FakeGpus:
    """GPUs on which a CUDA build of torch runs. A test that asks for them is marked `rig` and has 200 s or so."""
    found = find(tmp_path / "gpus")
    if isinstance(found, str):
        pytest.skip(found)
    return found


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

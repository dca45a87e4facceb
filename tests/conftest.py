"""Shared by all tests."""

from __future__ import annotations

import os
import socket

import pytest


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is known of this node is the tests' own: the first launch checks it in full, and the user's is untouched."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["SAFELAUNCH_HISTORY"] = "0"  # what a test has run before says nothing of this one


@pytest.fixture
def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

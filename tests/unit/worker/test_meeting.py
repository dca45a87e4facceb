"""Where a call of `init_process_group` meets its peers, whatever the source of its rank."""

from __future__ import annotations

import os
from typing import Any

import pytest

from safelaunch.worker import meeting


def init_process_group(
    backend: Any = None,
    init_method: Any = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
) -> None:
    """As torch has it."""


class Store:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


NETWORK = os.readlink("/proc/self/ns/net")
ENVIRONMENT = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500", "RANK": "3", "WORLD_SIZE": "8"}
ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}


def asked(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *args: Any, **kwargs: Any) -> meeting.Place:
    for name in (*ENVIRONMENT, *ELASTIC):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return meeting.asked_for(init_process_group, args, kwargs)


@pytest.mark.parametrize(
    ("environ", "arguments", "rank", "size", "words"),
    [
        (ENVIRONMENT, {}, 3, 8, ["tcp", "node-a", "29500"]),
        (ENVIRONMENT | ELASTIC, {}, 3, 8, ["tcp", "node-a", "29500", "none", "1"]),
        (ENVIRONMENT, {"rank": 1, "world_size": 2}, 1, 2, ["tcp", "node-a", "29500"]),
        (ENVIRONMENT, {"init_method": "tcp://localhost:7", "rank": 0, "world_size": 2}, 0, 2, ["tcp", NETWORK, "7"]),
        ({}, {"init_method": "tcp://127.0.0.1:7?rank=1&world_size=2"}, 1, 2, ["tcp", NETWORK, "7"]),
        ({}, {"init_method": "tcp://[::1]:7", "rank": 1, "world_size": 2}, 1, 2, ["tcp", NETWORK, "7"]),
        ({}, {"init_method": "file:///a/../b", "rank": 1, "world_size": 2}, 1, 2, ["file", "/b"]),
        ({}, {"store": Store(host="10.0.0.1", port=7), "rank": 1, "world_size": 2}, 1, 2, ["tcp", "10.0.0.1", "7"]),
        ({}, {"store": Store(path="/b"), "rank": 1, "world_size": 2}, 1, 2, ["file", "/b"]),
        ({}, {"backend": "mpi"}, -1, 0, ["mpi"]),
        ({"MASTER_ADDR": "node-a", "MASTER_PORT": "7"}, {}, -1, 0, ["tcp", "node-a", "7"]),
    ],
)
def test_the_place_is_that_of_the_call(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], arguments: Any, rank: int, size: int, words: list[str]
) -> None:
    place = asked(monkeypatch, environ, **arguments)

    assert (place.rank, place.world_size, place.words) == (rank, size, words)
    assert place.known == (rank >= 0)


def test_prefixes_around_a_store_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Store(host="10.0.0.1", port=7)
    store = Store(underlying_store=Store(underlying_store=inner, prefix="a"), prefix="b")

    assert asked(monkeypatch, {}, "gloo", None, None, 2, 1, store).words == ["tcp", "10.0.0.1", "7"]


@pytest.mark.parametrize("missing", ENVIRONMENT)
def test_an_environment_names_a_rank_only_as_a_whole(missing: str) -> None:
    assert meeting.of_environment(ENVIRONMENT) is not None
    assert meeting.of_environment({name: value for name, value in ENVIRONMENT.items() if name != missing}) is None


@pytest.mark.parametrize("value", ["", "x", "8", "-1"])
def test_a_rank_outside_of_the_job_is_none(value: str) -> None:
    assert meeting.of_environment(ENVIRONMENT | {"RANK": value}) is None


@pytest.mark.parametrize(("address", "loopback"), [("localhost", True), ("127.0.0.1", True), ("node-a", False)])
def test_who_meets_at_a_loopback_address_has_no_peers_elsewhere(address: str, loopback: bool) -> None:
    place = meeting.of_environment(ENVIRONMENT | {"MASTER_ADDR": address})

    assert place is not None
    assert place.loopback == loopback

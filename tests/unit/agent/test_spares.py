"""Spare nodes: how a job's end comes to them through the store of the rendezvous, and where there can be none."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from safelaunch.agent import spares
from safelaunch.agent.spares import Spares

PREFIX = "safelaunch/spares/job/"


class Ended(Exception):
    """The agent's process would be gone."""


class FakeChannel:
    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.end: dict[str, Any] | None = None

    def post(self, event: str, **fields: Any) -> None:
        self.posted.append((event, fields))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Spares:
    """A node in the rendezvous of a job."""
    executor = dynamic_rendezvous._DistributedRendezvousOpExecutor
    for owner, name in (
        (executor, spares.JOINS),
        (executor, spares.LEAVES),
        (dynamic_rendezvous.DynamicRendezvousHandler, "next_rendezvous"),
        (dynamic_rendezvous.DynamicRendezvousHandler, "num_nodes_waiting"),
        (dynamic_rendezvous._RendezvousJoinOp, "__call__"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # taken back afterwards

    def leave(_: int) -> None:
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(spares, "LAST_S", 0.2)
    found = Spares(FakeChannel())  # type: ignore[arg-type]
    found._store, found._prefix = dist.HashStore(), PREFIX
    return found


def said(node: Spares) -> Any:
    return json.loads(node._store.get(PREFIX + "end")) if node._store.check([PREFIX + "end"]) else None


def posted(node: Spares) -> list[tuple[str, dict[str, Any]]]:
    return node._channel.posted  # type: ignore[attr-defined,no-any-return]


def test_without_spares_no_word_is_left(node: Spares) -> None:
    node.tell_end(None)
    assert said(node) is None


@pytest.mark.parametrize(
    ("end", "event", "fields"),
    [
        ({"code": 0, "line": ""}, "succeeded", {}),
        (
            {"code": 124, "line": "SL301: rank 1 sleeps"},
            "failed",
            {"phase": "spare", "type": "JobEnded", "message": "SL301: rank 1 sleeps", "code": 124},
        ),
    ],
)
def test_a_spare_ends_as_the_job_has_ended(
    end: dict[str, Any], event: str, fields: dict[str, Any], node: Spares
) -> None:
    node._store.set(PREFIX + "end", json.dumps(end))
    with pytest.raises(Ended):
        node._look(node._store)
    assert posted(node) == [(event, fields)]
    assert node._store.add(PREFIX + "heard", 0) == 1


def test_a_job_that_is_not_over_lets_a_spare_wait(node: Spares) -> None:
    node._look(node._store)
    assert posted(node) == []


def test_the_supervisors_verdict_is_the_word_of_a_failure(node: Spares) -> None:
    node._store.add(PREFIX + "waiting", 1)
    node._channel.end = {"code": 75, "line": "SL604: node-b has gone"}
    threading.Timer(0.2, node._store.add, (PREFIX + "heard", 1)).start()
    node.tell_end(RuntimeError("a failure"))
    assert said(node) == {"code": 75, "line": "SL604: node-b has gone"}


def test_a_failure_counts_for_more_than_a_node_that_ended_well(node: Spares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "HEARD_S", 0.05)
    node._store.add(PREFIX + "waiting", 1)
    node.tell_end(RuntimeError("a failure"))
    node.tell_end(None)
    assert said(node) == {"code": 1, "line": "RuntimeError: a failure"}


def test_a_node_waits_until_the_spares_have_heard_and_not_for_ever(
    node: Spares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "HEARD_S", 0.3)
    node._store.add(PREFIX + "waiting", 1)
    begun = time.monotonic()
    node.tell_end(None)
    assert 0.3 <= time.monotonic() - begun < 2.0


def test_where_nobody_has_said_how_it_ended_no_code_is_made_up(node: Spares) -> None:
    with pytest.raises(Ended):
        node._end_by_last_word()
    assert posted(node)[-1][1]["code"] == 0
    assert spares.GONE in posted(node)[-1][1]["message"]


def test_a_spare_that_is_called_waits_no_more(node: Spares) -> None:
    node._begin()
    node._begin()  # the rendezvous writes it anew where somebody was quicker
    assert node._store.add(PREFIX + "waiting", 0) == 1
    node._called()
    assert node._store.add(PREFIX + "waiting", 0) == 0
    assert posted(node) == [("spare", {"waits": True}), ("spare", {"waits": False})]


def test_a_torch_without_a_redundancy_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dynamic_rendezvous._DistributedRendezvousOpExecutor, spares.JOINS)
    with pytest.raises(ValueError, match="keeps no spare nodes"):
        Spares(FakeChannel())  # type: ignore[arg-type]


@dataclasses.dataclass
class State:
    """A rendezvous of two nodes, and this one, as torch keeps it."""

    participants: dict[str, int]
    wait_list: set[str] = dataclasses.field(default_factory=set)
    redundancy_list: set[str] = dataclasses.field(default_factory=set)
    complete: bool = True
    closed: bool = False

    def joins(self) -> str:
        """What this node does in it."""
        settings = SimpleNamespace(max_nodes=2, min_nodes=2, run_id="job")
        self.last_heartbeats = {"me": datetime.now(timezone.utc)}
        settings.keep_alive_interval = timedelta(seconds=5)
        ctx = SimpleNamespace(node="me", state=self, settings=settings)
        return str(dynamic_rendezvous._RendezvousJoinOp()(ctx, time.monotonic() + 60).name)


def test_a_spare_joins_for_a_lost_node_and_not_for_one_that_restarts(
    node: Spares, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert State({"a": 0, "b": 1}, redundancy_list={"me"}).joins() == "SYNC"
    assert State({"a": 0}, {"b"}, redundancy_list={"me"}).joins() == "SYNC"  # b comes back
    assert State({"a": 0}, redundancy_list={"me"}).joins() == "SYNC"  # it may be about to
    monkeypatch.setattr(spares, "MISSING_S", 0.0)
    assert State({"a": 0}, redundancy_list={"me"}).joins() == "REMOVE_FROM_REDUNDANCY_LIST"
    assert node._missing_since is not None


def test_who_waits_for_a_round_that_is_full_becomes_a_spare(node: Spares) -> None:  # noqa: ARG001
    assert State({"a": 0, "b": 1}, {"me"}).joins() == "ADD_TO_REDUNDANCY_LIST"
    assert State({"a": 0}, {"me"}).joins() == "SYNC"


def test_in_a_round_that_is_full_nobody_is_waited_for(node: Spares) -> None:  # noqa: ARG001
    def waiting(*participants: str) -> int:
        handler = SimpleNamespace(
            _heartbeat_lock=threading.Lock(),
            _settings=SimpleNamespace(max_nodes=2),
            _state_holder=SimpleNamespace(
                sync=lambda: None, state=State({name: n for n, name in enumerate(participants)}, {"me"})
            ),
        )
        return dynamic_rendezvous.DynamicRendezvousHandler.num_nodes_waiting(handler)  # type: ignore[arg-type]

    assert waiting("a", "b") == 0
    assert waiting("a") == 1

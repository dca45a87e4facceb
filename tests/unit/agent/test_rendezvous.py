"""The rendezvous of torch's, without what only takes time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from safelaunch.agent import rendezvous


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 1000])
def test_methods_have_the_names_that_torch_gives_them(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> str:
        return dynamic_rendezvous.get_method_name(depth)

    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", dynamic_rendezvous.get_method_name)
    theirs = ask()
    rendezvous.name_methods_at_once()
    assert dynamic_rendezvous.get_method_name is not theirs
    assert ask() == theirs or depth == 0  # torch's own name


def test_only_the_random_delay_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(dynamic_rendezvous, "_delay", waited.append)

    rendezvous.join_at_once()
    dynamic_rendezvous._delay((0, 0.3))
    dynamic_rendezvous._delay(seconds=1)

    assert waited == [1]


class Board:
    """What the nodes of a rendezvous share, as the c10d store keeps it."""

    name = "board"

    def __init__(self) -> None:
        self.now, self._kept = 1000.0, b""

    def get_state(self) -> tuple[bytes, bytes] | None:
        return (self._kept, self._kept) if self._kept else None

    def set_state(self, state: bytes, token: object) -> tuple[bytes, bytes, bool]:
        if (token or b"") == self._kept:
            self._kept = state
        return self._kept, self._kept, self._kept == state


class OneNode:
    """A node of a rendezvous of two, whose clock is ahead of the true time."""

    def __init__(self, name: str, board: Board, ahead_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self._board, self._ahead, self._patch = board, timedelta(seconds=ahead_s), monkeypatch
        self.node = dynamic_rendezvous._NodeDesc(name, 1, 0)
        timeouts = dynamic_rendezvous.RendezvousTimeout()
        settings = dynamic_rendezvous.RendezvousSettings("job", 2, 2, timeouts, timedelta(seconds=5), 3)
        self._holder = dynamic_rendezvous._BackendRendezvousStateHolder(board, settings)
        self._executor = dynamic_rendezvous._DistributedRendezvousOpExecutor(self.node, self._holder, settings)

    def does(self, operation: Callable[[Any, float], Any], seconds: float = 2.0) -> Any:
        """One step of an operation, `seconds` later; the state as this node sees it then."""
        self._board.now += seconds
        wall = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=self._board.now) + self._ahead
        clock = SimpleNamespace(monotonic=lambda: self._board.now)
        self._patch.setattr(dynamic_rendezvous, "datetime", SimpleNamespace(now=lambda _: wall))
        self._patch.setattr(dynamic_rendezvous, "time", clock)
        self._patch.setattr(rendezvous, "time", clock)
        steps = iter([operation])
        self._executor.run(lambda *asked: next(steps, _finish)(*asked), self._board.now + 600)
        return self._holder.state


def _finish(*_: Any) -> Any:
    return dynamic_rendezvous._Action.FINISH


@pytest.fixture
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[OneNode, OneNode]:
    """Two nodes that have met. The clock of the second one is ahead by the parameter, in seconds."""
    holder = dynamic_rendezvous._BackendRendezvousStateHolder
    monkeypatch.setattr(holder, "_sanitize", holder._sanitize)
    rendezvous.age_heartbeats_by_our_own_clock()
    join, board = dynamic_rendezvous._RendezvousJoinOp(), Board()
    nodes = OneNode("a", board, 0.0, monkeypatch), OneNode("b", board, request.param, monkeypatch)
    for node in nodes:
        node.does(join)
    for node in nodes:
        state = node.does(join)
        assert state.complete
        assert set(state.participants) == {one.node for one in nodes}
    return nodes


@pytest.mark.parametrize("pair", [-40.0, 0.0, 40.0], indirect=True)
def test_nodes_whose_clocks_differ_stay_one_world(pair: tuple[OneNode, OneNode]) -> None:
    beat = dynamic_rendezvous._RendezvousKeepAliveOp()
    for _ in range(8):
        assert [len(node.does(beat, 2.5).participants) for node in pair] == [2, 2]


@pytest.mark.parametrize("pair", [0.0, 40.0], indirect=True)
def test_a_node_that_beats_no_more_is_dead(pair: tuple[OneNode, OneNode]) -> None:
    beat = dynamic_rendezvous._RendezvousKeepAliveOp()
    seen = [len(pair[1].does(beat, 5.0).participants) for _ in range(4)]
    assert seen == [2, 2, 1, 1]  # more than 15 s after its last beat was seen

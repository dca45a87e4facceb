"""The child for pairs, with real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from safelaunch.preflight.between.pair_child import PairChild


@pytest.fixture
def child() -> Iterator[PairChild]:
    found = PairChild()
    yield found
    found.end()


def task(**changes: object) -> dict[str, object]:
    return {"kind": "compute", "backend": "gloo", "nlocal": 2, "deadline_s": 20.0, **changes}


def test_it_computes_again_and_again(child: PairChild) -> None:
    for _ in range(2):
        value, error = child.ask(task())
        assert (value > 0, error) == (True, "")


def test_ranks_that_hang_cost_their_deadline_and_the_next_task_is_done(child: PairChild) -> None:
    assert child.ask(task(hang=True, deadline_s=0.5)) == (
        0.0,
        "local rank 0 did not come back within 0.5 s, before computing",
    )
    assert child.ask(task())[1] == ""


def test_a_rank_that_fails_says_why(child: PairChild) -> None:
    _, error = child.ask(task(kind="pair", role=0, peer_ip="127.0.0.1", store=["127.0.0.1", "no port"], key="k"))
    assert error.startswith("local rank ")
    assert "TypeError" in error


def test_the_ranks_end_with_it(child: PairChild) -> None:
    asking = threading.Thread(target=child.ask, args=(task(hang=True, deadline_s=60.0),))
    asking.start()
    until = time.monotonic() + 60.0
    ranks: list[psutil.Process] = []
    while len(ranks) < 2 and time.monotonic() < until:
        ranks = [found for found in psutil.Process().children(recursive=True) if _is_rank(found)]
    child.end()
    asking.join()

    assert len(ranks) == 2
    assert psutil.wait_procs(ranks, timeout=30.0)[1] == []


def _is_rank(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and any("pair_probe" in word for word in parent.cmdline())

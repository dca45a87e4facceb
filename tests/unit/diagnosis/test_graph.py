"""The graph is built once for a case, and its cost grows with the ranks, not with the pairs of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from types import ModuleType

import pytest
from hang_scenes import ASLEEP, call, elsewhere, hang, waiting

from safelaunch.diagnosis import diagnose, view
from safelaunch.diagnosis.waitgraph import instance
from safelaunch.diagnosis.why import lines
from safelaunch.model import Case


def of(size: int) -> Case:
    """One rank sleeps, all others wait for it in the world."""
    return hang(*(elsewhere(n, ASLEEP) if n == 1 else waiting(n, call(size=size)) for n in range(size)))


def counted(monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType = instance) -> list[int]:
    calls = [0]
    real: Callable[..., object] = getattr(module, name)

    def counting(*arguments: object) -> object:
        calls[0] += 1
        return real(*arguments)

    monkeypatch.setattr(module, name, counting)
    return calls


def test_rules_share_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    built = counted(monkeypatch, "build", view)
    assert diagnose(of(4)).culprit_ranks == (1,)
    assert built == [1]
    diagnose(of(4))
    assert built == [2]  # an equal case, and yet another one


@pytest.mark.parametrize("name", ["call_at_number", "absence_is_proof", "differs", "call_signature"])
def test_twice_the_ranks_are_twice_the_work(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    calls = counted(monkeypatch, name)
    work = []
    for size in (40, 80):
        calls[0] = 0
        assert diagnose(of(size)).culprit_ranks == (1,)
        work.append(calls[0])

    assert work[1] <= 2 * work[0] + 2


def test_chains_of_any_length_are_followed() -> None:
    everybody = [waiting(n, call("recv", 3, peer=n + 1, size=3000)) for n in range(2999)]
    verdict = diagnose(hang(*everybody, elsewhere(2999, ASLEEP)))

    assert verdict.culprit_ranks == (2999,)


def test_a_world_of_ranks_that_are_not_there_takes_no_time_for_each_call() -> None:
    size = 1 << 18
    calls = [call(seq=seq, size=size) for seq in range(300)]
    ranks = [
        dataclasses.replace(waiting(number, *calls[-1:]), collectives=tuple(calls), recorded=None)
        for number in range(4)
    ]
    case = dataclasses.replace(hang(*ranks), world_size=size, groups=())

    began = time.process_time()
    verdict = diagnose(case)
    told = lines(case)

    assert time.process_time() - began < 5
    assert verdict.code.startswith("SL3")
    assert any(f"ranks 4-{size - 1} (of which nothing is known)" in line for line in told)


def test_what_one_rank_waits_for_is_not_said_of_all() -> None:
    """Each receives from its own neighbour, and of the last one nothing is known."""
    case = hang(*(waiting(n, call("recv", 1, peer=n + 1, size=4)) for n in range(3)))
    summary = diagnose(dataclasses.replace(case, world_size=4)).summary

    assert "ranks 0-2 wait in recv from rank" not in summary

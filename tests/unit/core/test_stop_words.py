"""Ranks stop at the same call of `should_stop()`, however fast they call it."""

from __future__ import annotations

import mmap
import multiprocessing
import random
import time
from collections.abc import Iterator

import pytest

import safelaunch
from safelaunch import stop_words

RANKS = 4
CONTEXT = multiprocessing.get_context("fork")


def train(memory: mmap.mmap, rank: int, seed: int, true_at: object) -> None:
    """Call at a pace of this rank's own: the slowest takes four times as long as the quickest."""
    should_stop = stop_words.Rank(memory, rank * stop_words.SIZE)
    source, rest = random.Random(seed), (rank + 1) * 0.0003
    calls = 1
    while not should_stop():
        calls += 1
        time.sleep(source.random() * rest)
    true_at[rank] = calls  # type: ignore[index]


def stops_at(seed: int) -> list[int]:
    """One run of four ranks: at which call each of them stopped."""
    memory, true_at = mmap.mmap(-1, RANKS * stop_words.SIZE), CONTEXT.Array("Q", RANKS, lock=False)
    ranks = [CONTEXT.Process(target=train, args=(memory, rank, seed + rank, true_at)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    areas = [memoryview(memory)[i * stop_words.SIZE : (i + 1) * stop_words.SIZE] for i in range(RANKS)]
    words = stop_words.Ranks(areas)
    while not all(words.each(stop_words.CALLS)):
        time.sleep(0.001)
    time.sleep(random.Random(seed).random() * 0.02)
    words.limit(stop_words.HELD)
    time.sleep(stop_words.SETTLE_S)
    words.limit(words.largest(stop_words.CALLS) + 1)
    for rank in ranks:
        rank.join(60)
    assert words.each(stop_words.TOLD) == list(true_at)
    return list(true_at)


@pytest.mark.parametrize("tries", [10, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_ranks_of_different_speed_stop_at_the_same_call(tries: int) -> None:
    found = [stops_at(seed) for seed in range(tries)]

    assert [each for each in found if len(set(each)) > 1] == []
    assert all(each[0] > 0 for each in found)


@pytest.fixture
def rank() -> stop_words.Rank:
    return stop_words.Rank(bytearray(stop_words.SIZE), 0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stop_words, "PATIENCE_S", 0.02)
    return


def test_it_is_true_from_one_call_on(rank: stop_words.Rank) -> None:
    assert [rank(), rank()] == [False, False]
    rank.words[stop_words.LIMIT] = 4

    assert [rank(), rank(), rank()] == [False, True, True]
    assert rank.words[stop_words.TOLD] == 4


@pytest.mark.usefixtures("quick")
def test_a_rank_whose_supervisor_says_no_more_goes_on_and_waits_once(rank: stop_words.Rank) -> None:
    rank.words[stop_words.LIMIT] = stop_words.HELD
    assert rank() is False

    begun = time.monotonic()
    assert not any(rank() for _ in range(100))
    assert time.monotonic() - begun < 100 * stop_words.PATIENCE_S

    rank.words[stop_words.LIMIT] = 50
    assert rank() is True


def test_it_is_false_outside_safelaunch() -> None:
    assert safelaunch.should_stop() is False

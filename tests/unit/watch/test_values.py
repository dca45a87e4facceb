"""Values that are to be the same on all ranks."""

from __future__ import annotations

import pytest

from safelaunch.model.values import Told
from safelaunch.watch.values import Values


def value(rank: int, shown: str, *, part: str = "lr", number: int = 1, digest: str = "") -> Told:
    return Told(rank, "lr", number, part, digest or shown, shown, "train.py:5")


def told(*values: Told, ranks: int = 4, last: bool = True) -> list[str]:
    compared = Values(ranks)
    compared.add(values)
    return [finding.summary for finding in compared.told(last=last)]


def test_the_rank_that_differs_from_all_others_is_named() -> None:
    assert told(*(value(rank, "0.2" if rank == 2 else "0.1") for rank in range(4)), last=False) == [
        "rank 2 differs from its peers in lr: 0.2, theirs 0.1"
    ]


def test_of_two_ranks_both_are_shown() -> None:
    assert told(value(0, "0.1"), value(1, "0.2"), ranks=2) == ["ranks differ in lr: 0.1 on rank 0, 0.2 on rank 1"]


def test_what_looks_the_same_and_is_not_is_said_to() -> None:
    same = [value(rank, "a tensor", digest="x" if rank else "y") for rank in range(3)]
    assert told(*same, ranks=3) == ["rank 0 differs from its peers in lr: all have a tensor, and not the same"]


def test_a_part_that_one_rank_alone_has_is_none_on_the_others() -> None:
    parts = [value(rank, "1", part="config.a") for rank in range(3)] + [value(1, "2", part="config.b")]
    assert told(*parts, ranks=3) == ["rank 1 differs from its peers in config.b: 2, theirs none"]


def test_what_is_the_same_is_silent_and_forgotten() -> None:
    compared = Values(2)
    for number in range(10_000):
        compared.add([value(0, "0.1", number=number), value(1, "0.1", number=number)])

    assert compared.told(last=True) == []
    assert not compared._calls


def test_the_number_of_the_call_is_told() -> None:
    assert told(*(value(rank, str(rank // 2), number=7) for rank in range(3)), ranks=3) == [
        "rank 2 differs from its peers in lr (call 7): 1, theirs 0"
    ]


def test_each_name_is_told_once_and_ranks_that_come_late_are_waited_for_once() -> None:
    compared = Values(3)
    compared.add([value(0, "0.1"), value(1, "0.2")])
    assert compared.told() == []
    compared.add([value(2, "0.1")])
    assert [finding.summary for finding in compared.told()] == ["rank 1 differs from its peers in lr: 0.2, theirs 0.1"]
    compared.add(value(rank, str(rank), number=2) for rank in range(3))
    assert compared.told(last=True) == []


@pytest.mark.parametrize("missing", [1, 2])
def test_a_rank_that_has_not_called_says_nothing_of_it(missing: int) -> None:
    assert told(*(value(rank, "0.1") for rank in range(4) if rank != missing)) == []

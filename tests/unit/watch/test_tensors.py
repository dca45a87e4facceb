"""Calls that have met though their tensors do not fit together."""

from __future__ import annotations

from safelaunch.model import WorkerGroup, WorkerProcess
from safelaunch.watch.tensors import Brought, RankTensors, Tensors

WORLD = 4


def call(seq: int, numel: int = 1000, dtype: str = "float32", *, op: str = "all_reduce", how: str = "sum") -> Brought:
    return Brought(op, "0", seq, WORLD, numel, dtype, how, f"train.py:{10 + seq}")


def told(**ranks: Brought) -> list[str]:
    """What is said of one call of ranks `r0`, `r1`, ..."""
    tensors = Tensors()
    for rank, brought in ranks.items():
        tensors.add(int(rank[1:]), [brought])
    return [finding.summary for finding in tensors.told(last=True)]


def test_the_rank_that_differs_from_all_others_is_named() -> None:
    said = told(r0=call(11), r1=call(11), r2=call(11, 999), r3=call(11))
    assert said == ["rank 2 brought 999 x float32 to all_reduce #11, its peers 1000 x float32"]


def test_the_first_rank_may_be_the_one_that_differs() -> None:
    said = told(r0=call(11, dtype="float64"), r1=call(11), r2=call(11), r3=call(11))
    assert said == ["rank 0 brought 1000 x float64 to all_reduce #11, its peers 1000 x float32"]


def test_of_two_ranks_both_are_shown() -> None:
    assert told(r0=call(1, 5), r1=call(1, 6)) == ["rank 0 brought 5 x float32 to all_reduce #1, rank 1 6 x float32"]


def test_reductions_are_compared_where_sizes_agree() -> None:
    said = told(r0=call(3), r1=call(3, how="max"), r2=call(3), r3=call(3))
    assert said == ["rank 1 made all_reduce #3 with max, its peers with sum"]


def test_a_reduction_that_is_not_known_proves_nothing() -> None:
    assert told(r0=call(3), r1=call(3, how=""), r2=call(3), r3=call(3)) == []
    assert told(r0=call(3, how=""), r1=call(3), r2=call(3), r3=call(3)) == []


def test_what_may_be_uneven_and_what_is_alike_is_silent() -> None:
    assert told(r0=call(1, op="all_gather"), r1=call(1, 5, op="all_gather")) == []
    assert told(r0=call(1, -1), r1=call(1, 5)) == []
    assert told(r0=call(1), r1=call(1), r2=call(1), r3=call(1)) == []
    assert told(r0=call(1), r1=call(2, 5)) == []


def test_a_line_is_told_of_once() -> None:
    tensors = Tensors()
    tensors.add(0, [call(1), call(2)])
    tensors.add(1, [call(1, 7), call(2)])
    assert len(tensors.told(last=True)) == 1
    tensors.add(0, [call(1)])
    tensors.add(1, [call(1, 8)])
    assert tensors.told(last=True) == []


def test_those_who_come_a_moment_later_are_waited_for_once() -> None:
    tensors = Tensors()
    tensors.add(0, [call(1, 7)])
    tensors.add(1, [call(1)])
    assert tensors.told() == []
    tensors.add(2, [call(1)])
    assert [finding.summary for finding in tensors.told()] == [
        "rank 0 brought 7 x float32 to all_reduce #1, its peers 1000 x float32"
    ]


def test_each_look_goes_on_where_the_one_before_ended_and_a_restart_begins_anew() -> None:
    asked: list[tuple[int, int]] = []

    def read(worker: WorkerProcess, after: int) -> tuple[list[Brought], int]:
        asked.append((worker.rank, after))
        return [call(after + 1, 1000 - worker.rank)], after + 1

    workers = tuple(WorkerProcess(rank, rank, 100 + rank, 1, "") for rank in range(2))
    watcher = RankTensors(read)
    first, second = WorkerGroup(0, WORLD, 2, workers), WorkerGroup(1, WORLD, 2, workers)

    assert len(watcher.poll(first, last=True)) == 1
    assert len(watcher.poll(first, last=True)) == 1  # at another line
    assert len(watcher.poll(second, last=True)) == 1
    assert asked == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)]

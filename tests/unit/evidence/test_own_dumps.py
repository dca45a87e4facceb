"""What torch's watchdogs leave of ranks whose processes they end."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest
from fr_dumps import Recorder

from safelaunch import procfs
from safelaunch.evidence import own_dumps
from safelaunch.model import Exit, WorkerProcess

GROUPS = {"0": range(2)}
NAME = "TORCH_FR_DUMP_TEMP_FILE"


def worker(rank: int, *, ended: bool = True) -> WorkerProcess:
    """A rank that was born when this process was, and was aborted 3 s from now."""
    start = next(process.start for process in procfs.scan() if process.pid == os.getpid())
    exit = Exit(-6, time.monotonic() + 3.0) if ended else None
    return WorkerProcess(rank, rank, 4_000_000 + rank, start, "", exit=exit)


def dump(rank: int, folder: Path, *, timeout_ms: int = 3000, age_s: float = 0.0) -> None:
    """A rank that has enqueued three calls, of which the first has completed."""
    recorder = Recorder(rank, GROUPS, backend="nccl2", counters=True)
    recorder.clock_ns = time.time_ns() - int(age_s * 1e9)
    recorder.call(timeout_ms=timeout_ms)
    # A watchdog marks what it gives up as retired.
    recorder.calls(2, state="scheduled", retired=True, timeout_ms=timeout_ms).write(folder, "fr_rank_")


def test_calls_of_a_rank_that_was_aborted_stand_as_they_did(tmp_path: Path) -> None:
    dump(0, tmp_path)

    (found,) = own_dumps.left_by([worker(0), worker(1)], {}, {NAME: f"{tmp_path}/fr_rank_"})

    assert found.rank == 0
    assert found.data is not None
    assert [call["state"] for call in found.data["collectives"]] == ["completed", "enqueued", "enqueued"]
    assert found.data["given_up"]
    assert found.data["collectives"][0]["t"] == pytest.approx(time.monotonic(), abs=60)


def test_what_ended_before_its_timeout_was_not_given_up(tmp_path: Path) -> None:
    dump(0, tmp_path, timeout_ms=600_000)

    (found,) = own_dumps.left_by([worker(0)], {NAME: f"{tmp_path}/fr_rank_"})

    assert found.data is not None
    assert not found.data["given_up"]


def test_a_call_that_came_after_its_timeout_was_given_up(tmp_path: Path) -> None:
    recorder = Recorder(0, GROUPS, counters=True)
    recorder.clock_ns = time.time_ns()
    late = {"timeout_ms": 2000, "time_discovered_completed_ns": recorder.clock_ns + 4_001_000_000}
    recorder.call("_all_gather_base", **late).call(timeout_ms=2000).write(tmp_path, "fr_rank_")

    (found,) = own_dumps.left_by([worker(0)], {NAME: f"{tmp_path}/fr_rank_"})

    assert found.data is not None
    assert found.data["given_up"]
    assert found.data["late"] == {"call": "all_gather_into_tensor #1", "took_s": 4.0, "timeout_s": 2.0}


def test_of_an_earlier_attempt_nothing_is_read(tmp_path: Path) -> None:
    dump(0, tmp_path, age_s=1e6)

    assert own_dumps.left_by([worker(0)], {NAME: f"{tmp_path}/fr_rank_"}) == ()


def test_of_a_living_rank_only_the_dump_of_a_watchdog_that_gave_up_counts(tmp_path: Path) -> None:
    dump(0, tmp_path, timeout_ms=1)
    dump(1, tmp_path, timeout_ms=600_000)
    alive = [worker(0, ended=False), worker(1, ended=False)]

    (found,) = own_dumps.left_by(alive, {NAME: f"{tmp_path}/fr_rank_"})

    assert (found.rank, found.data is not None and found.data["given_up"]) == (0, True)


def test_a_damaged_dump_is_told_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "fr_rank_0").write_bytes(b"\x80\x02}q\x00(X")

    (found,) = own_dumps.left_by([worker(0)], {NAME: f"{tmp_path}/fr_rank_"})

    assert found.data is None
    assert "fr_rank_0" in found.unavailable


@pytest.mark.parametrize(
    "pickle",
    [
        b"\x80\x02}r\x00\x00\x00\x20.",  # a place 2^29 of the table of what was read: 4 GB
        b"\x80\x04" + b")".join([b"(" * 1] * 2) + b"\x85" * 5_000_000,  # nested deeper than anything follows
    ],
    ids=["memory", "depth"],
)
def test_a_dump_that_asks_for_the_memory_of_the_node_costs_itself(tmp_path: Path, pickle: bytes) -> None:
    (tmp_path / "fr_rank_0").write_bytes(pickle)
    dump(1, tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first, second = own_dumps.left_by([worker(0), worker(1)], {NAME: f"{tmp_path}/fr_rank_"})

    assert first.data is None
    assert "fr_rank_0" in first.unavailable
    assert second.data is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_pipe_in_the_place_of_a_dump_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fr_rank_0")

    (found,) = own_dumps.left_by([worker(0)], {NAME: f"{tmp_path}/fr_rank_"})

    assert "no regular file" in found.unavailable

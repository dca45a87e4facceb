"""Dumps that are cut off, empty, hostile or strange: what is left counts, and nothing is executed."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import time
from pathlib import Path

import pytest
from fr_dumps import Recorder, world, write_all

from safelaunch.diagnosis import diagnose
from safelaunch.evidence.offline import dump_case, dump_files
from safelaunch.evidence.offline.dump import Dump
from safelaunch.model import Verdict


class Opens:
    """Unpickled by anything that imports what it is told to, this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Four ranks of which rank 3 is late."""
    everybody = [Recorder(rank, world(4)).calls(3) for rank in range(4)]
    for recorder in everybody[:3]:
        recorder.call(state="scheduled")
    return write_all(tmp_path / "dumps", everybody)


def read(folder: Path) -> dict[int, Dump]:
    return {one.rank: one for one in dump_files.read_all(dump_files.find([str(folder)])[0])}


def judged(folder: Path) -> Verdict:
    return diagnose(dump_case.build(list(read(folder).values())))


def test_a_hostile_pickle_is_refused_and_does_nothing(job: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    harm = {"version": "2.10", "entries": [], "x": Opens(made)}
    (job / "nccl_trace_rank_1").write_bytes(pickle.dumps(harm, protocol=2))

    assert "refused: it asks for posix.mkdir" in read(job)[1].unreadable
    assert not made.exists()
    verdict = judged(job)
    assert (verdict.culprit_ranks, verdict.confidence) == ((3,), "low")
    assert "rank 1: nccl_trace_rank_1: the pickle is refused" in " ".join(verdict.because)


BOMBS = {
    "a memo of 64 GiB": b"\x80\x02}r\xff\xff\xff\xff.version",
    "a text of 2 GiB": b"\x80\x04\x8d" + struct.pack("<Q", 2 << 30) + b"version",
    "bytes of an exbibyte": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b"version",
    "as many dicts as fit": b"\x80\x02(Vversion\n" + b"}" * (60 << 20) + b"t.",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_that_asks_for_all_memory_costs_only_itself(job: Path, bomb: str) -> None:
    (job / "nccl_trace_rank_1").write_bytes(BOMBS[bomb])

    assert read(job)[1].unreadable
    assert judged(job).culprit_ranks == (3,)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_cut_off_is_no_proof_of_absence(job: Path, share: float, as_json: bool) -> None:
    whole = Recorder(1, world(4)).calls(3).call(state="scheduled")
    path = whole.write_json(job) if as_json else whole.write(job)
    if as_json:
        (job / "nccl_trace_rank_1").unlink()
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])

    assert "cut off" in read(job)[1].unreadable
    assert judged(job).culprit_ranks == (3,)


def test_the_one_dump_that_matters_is_cut_off(job: Path) -> None:
    path = job / "nccl_trace_rank_3"
    path.write_bytes(path.read_bytes()[:-40])
    verdict = judged(job)

    assert verdict.culprit_ranks == ()
    assert "nothing is known of rank 3" in verdict.summary


def test_an_empty_dump_is_told_of(job: Path) -> None:
    (job / "nccl_trace_rank_1").write_bytes(b"")

    assert read(job)[1].unreadable == "it is empty"


def test_too_large_a_file_is_not_read(job: Path) -> None:
    with open(job / "nccl_trace_rank_1", "ab") as file:
        file.truncate(dump_files.MAX_BYTES + 1)

    assert "larger than" in read(job)[1].unreadable


def test_names_need_not_be_text(job: Path) -> None:
    os.rename(os.path.join(os.fsencode(job), b"nccl_trace_rank_1"), os.path.join(os.fsencode(job), b"n\xff_rank_1"))

    assert judged(job).culprit_ranks == (3,)


def test_a_fifo_is_not_waited_for(job: Path) -> None:
    os.mkfifo(job / "nccl_trace_rank_7.pipe")

    assert sorted(read(job)) == [0, 1, 2, 3]


def test_of_two_dumps_of_a_rank_the_later_counts(job: Path) -> None:
    Recorder(3, world(4)).calls(3).call(state="scheduled").write(job, "second_trace_rank_")
    found = dump_files.read_all(dump_files.find([str(job)])[0])

    assert diagnose(dump_case.build(found)).code == "SL310"
    assert diagnose(dump_case.build(found[::-1])).code == "SL310"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("comm_lib_trace_rank_0", 0),
        ("comm_lib_trace_rank_3.json", 3),
        ("fr_rank_7", 7),
        ("myjob17", 17),
        ("node-4_rank_31.pickle", 31),
        ("rank3_dump.json", 3),
        ("trace_5.trace.json", 5),
        ("README", None),
    ],
)
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    assert dump_files.rank_of(f"/x/{name}") == rank


def test_other_files_are_no_dumps(job: Path) -> None:
    (job / "case_1.json").write_text('{"incident": {}, "ranks": []}')
    (job / "model_2.pt").write_bytes(b"PK\x03\x04")
    (job / "slurm-4711.out").write_text("[rank0]: Watchdog caught collective operation timeout")
    (job / "rank_0.log").write_text("")
    found, others = dump_files.find([str(job)])

    assert ([one.rank for one in found], others) == ([0, 1, 2, 3], 4)


def test_a_large_number_in_a_name_makes_no_large_job(job: Path) -> None:
    Recorder(0, {}).call().write(job, "trace_rank_900000")

    assert len(dump_case.build(list(read(job).values())).ranks) == 5


def slow(one: dump_files.Found) -> Dump:
    """Reads a file in a time that its limit allows."""
    if one.rank:
        time.sleep(0.4)
    return Dump(one.rank, one.path)


def test_all_files_together_have_a_limit_and_those_that_were_not_read_are_named(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(4, 40):
        Recorder(rank, {}).call().write(job)
    monkeypatch.setattr(dump_files, "_read", slow)
    monkeypatch.setattr(dump_files, "TOTAL_S", 1.0)
    monkeypatch.setattr(dump_files, "PER_TASK", 1)
    begun = time.monotonic()
    found = read(job)

    assert time.monotonic() - begun < 3
    assert not found[0].unreadable
    assert "all files together took longer than 1 s" in found[39].unreadable


def test_nothing_is_waited_for_once_the_time_is_over(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OverError(BaseException):
        pass

    def ring(*_: object) -> None:
        raise OverError

    monkeypatch.setattr(dump_files, "_read", lambda _: time.sleep(30))
    before = signal.signal(signal.SIGALRM, ring)
    begun = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(OverError):
            read(job)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert time.monotonic() - begun < 3

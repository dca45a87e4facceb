"""Files of all sorts: compressed, damaged, endless, not UTF-8; and the marks that stand before a message."""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from log_pieces import LOST_NCCL, MAIN, STEP, WORLD, marked, rank, traceback, watchdog

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.evidence.logs.names import hint
from safelaunch.evidence.logs.prefixes import Habits, strip
from safelaunch.evidence.logs.sieve import Sieve, open_log
from safelaunch.evidence.logs.signatures import load
from safelaunch.model import Verdict
from safelaunch.model.logs import LogFacts

SIGNATURES = load(environ={"HOME": "/nonexistent"})
FAILED = rank(3, traceback("ValueError: bad sample 7", MAIN, STEP)) + rank(0, traceback(LOST_NCCL, MAIN, library=True))


def facts_of(path: Path, data: bytes) -> LogFacts:
    path.write_bytes(data)
    return read([str(path)], SIGNATURES)


def verdict_of(path: Path, data: bytes) -> Verdict:
    return diagnose(facts_of(path, data))


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert verdict_of(tmp_path / f"a.log{ending}", pack(FAILED.encode())).culprit_ranks == (3,)


def test_a_compressed_file_that_is_cut_tells_what_it_holds(tmp_path: Path) -> None:
    noise = "".join(f"step {i} {hash(str(i))}\n" for i in range(20_000))
    data = gzip.compress((FAILED + noise).encode())
    verdict = verdict_of(tmp_path / "a.log.gz", data[: len(data) // 2])

    assert verdict.culprit_ranks == (3,)
    assert any("was not read to its end" in text for text in verdict.because)


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    data = b"\xff\xfe\x00loss \x80\x81\n" * 50 + FAILED.replace("bad", "b\0d").encode() + b"\x00" * 300
    verdict = verdict_of(tmp_path / "a.log", data)

    assert verdict.culprit_ranks == (3,)


def test_a_line_without_an_end_is_read_in_pieces(tmp_path: Path) -> None:
    data = b"x" * (3 << 20) + b"CUDA out of memory. Tried to allocate 2.00 GiB" + b"y" * (3 << 20)
    verdict = verdict_of(tmp_path / "a.log", data)

    assert (verdict.code, verdict.culprit_ranks) == ("SL420", ())


def test_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    assert verdict_of(tmp_path / "a.log", FAILED.replace("\n", "\r\n").encode()).culprit_ranks == (3,)


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    noise = "".join(f"step {i}\n" for i in range(300_000)) + "a\rb\rc\n"
    verdict = verdict_of(tmp_path / "a.log", (noise + FAILED).encode())
    number = int(verdict.because[0].split(":")[1])

    assert (noise + FAILED).split("\n")[number - 1] == "[rank3]: ValueError: bad sample 7"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(FAILED)
    facts = read([str(tmp_path / "a.log"), str(tmp_path / "none.log")], SIGNATURES)

    assert facts.files[1].unreadable == "No such file or directory"
    assert diagnose(facts).culprit_ranks == (3,)


def test_nothing_that_can_be_read_is_no_health(tmp_path: Path) -> None:
    verdict = diagnose(read([str(tmp_path / "none.log")], SIGNATURES))

    assert (verdict.code, verdict.summary) == ("SL499", "no log could be read")


def test_of_a_folder_the_logs_are_read(tmp_path: Path) -> None:
    for name in ("logs/attempt_0/0/stderr.log", "slurm-7.out", "stdout", "train.log.1.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("fine\n")
    for name in ("model.pt", "train.py", "config.json", "core.1234"):
        (tmp_path / name).write_bytes(b"\0\1\2" * 100)
    read_files = {Path(file.path).name for file in read([str(tmp_path)], SIGNATURES).files}

    assert read_files == {"stderr.log", "slurm-7.out", "stdout", "train.log.1.gz"}


@pytest.mark.slow
def test_large_files_are_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    block = "".join(
        f"rank {i % 8} step {i} loss {i * 7919 % 1000 / 1000} note {hash(str(i)):x}\n" for i in range(50_000)
    )
    with path.open("w") as file:
        for _ in range(60):
            file.write(block)
        file.write(FAILED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = read([str(path)], SIGNATURES)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1024 if sys.platform == "linux" else 1)

    assert facts.files[0].size > 100 << 20
    assert diagnose(facts).culprit_ranks == (3,)
    assert grown < 150 << 20


def test_a_job_that_warns_without_end_is_still_read_to_its_last_words(tmp_path: Path) -> None:
    noise = "".join(f"WARNING {hash(str(i)):x} Error: try again\n" for i in range(150_000))
    assert verdict_of(tmp_path / "a.log", (noise + FAILED).encode()).culprit_ranks == (3,)


def test_a_line_that_told_nothing_is_seen_again_with_other_text(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"val_error: 1 Error: none\n" * 5 + b"CUDA error: 3\n" + b"CUDA out of memory\n")
    sieve = Sieve([b"Error: ", b"CUDA"])
    with open_log(str(path)) as stream:
        seen = [line for _, line in sieve.lines_of(stream)]

    assert seen == [b"val_error: 1 Error: none", b"CUDA error: 3", b"CUDA out of memory"]
    assert sieve.lines == 7


# ------------------------------------------------------------------------------------------------ marks

MARKS = {
    "[rank3]: hello": {"rank": 3, "text": "hello"},
    "[rank3]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:1] hello": {"rank": 3, "clock": "year"},
    "[default3]:hello": {"local": 3, "text": "hello"},
    "[trainer2]:[rank10]: hello": {"local": 2, "rank": 10, "text": "hello"},
    "[rank: 2] hello": {"rank": 2, "text": "hello"},
    "[RANK 1] 2026-05-19 10:10:29,701 [ERROR] x": {"rank": 1, "clock": "local"},
    "[1,3]<stderr>:hello": {"rank": 3, "text": "hello"},
    "2025-05-15T18:36:52.123456789Z hello": {"clock": "utc", "text": "hello"},
    "2025-05-15T18:36:52+02:00 hello": {"clock": "utc", "t": 1747327012.0},
    "2025-05-15T16:36:52Z hello": {"clock": "utc", "t": 1747327012.0},
    "2025-02-18 12:54 [rank13]:[E218 04:54:22.8 P.cpp:6] x": {"rank": 13, "clock": "local"},
    "[2025-05-15 18:36:52,123] hello": {"clock": "local", "text": "hello"},
    "18:36:52 hello": {"clock": "day", "text": "hello"},
    "[pod/job-worker-2/pytorch] hello": {"host": "job-worker-2", "text": "hello"},
    "2025-05-15T18:36:52Z stderr F hello": {"clock": "utc", "text": "hello"},
    '{"log":"[rank1]: hello\\n","stream":"stderr","time":"2025-05-15T18:36:52.1Z"}': {"rank": 1, "text": "hello"},
    '{app="a",pod="job-worker-2"} hello': {"host": "job-worker-2", "text": "hello"},
    "May 15 18:36:49 node-a kernel: NVRM: Xid": {"host": "node-a", "text": "NVRM: Xid"},
    "[ 12.345678] NVRM: Xid": {"clock": "boot", "text": "NVRM: Xid"},
    "(Worker pid=12, ip=10.0.0.1) hello": {"process": "Worker pid=12", "host": "10.0.0.1", "text": "hello"},
    "\x1b[36m[rank3]:\x1b[0m hello": {"rank": 3, "text": "hello"},
    " 12%|# | 1/2 [00:01<00:02][rank7]:[E709 17:05:38.1 P.cpp:6] hello": {"rank": 7, "clock": "year"},
    "dinov2.cn-d004 [stderr] [rank14]:[E909 09:55:29.3 P.cpp:6] hello": {"rank": 14, "clock": "year"},
    "[epoch 3] hello": {"rank": None, "local": None, "text": "[epoch 3] hello"},
    "[Rank 3] Watchdog caught": {"rank": None, "text": "[Rank 3] Watchdog caught"},
    "99:99:99 hello": {"t": None, "clock": ""},
    "3: hello": {"task": None, "text": "3: hello"},
}


@pytest.mark.parametrize("line", MARKS)
def test_what_stands_before_a_message_is_understood(line: str) -> None:
    found = strip(line, Habits())
    expected = MARKS[line]

    assert {key: getattr(found, key) for key in expected} == expected


def test_numbers_before_lines_are_tasks_where_all_lines_have_them() -> None:
    assert strip(" 3: hello", Habits(tasks=True)).task == 3


NAMES = {
    "logs/abc/attempt_1/3/stderr.log": {"local": 3, "attempt": 1},
    "runs/x/attempt_0/rank_003/stdout.log": {"rank": 3, "attempt": 0},
    "out.rank12.log": {"rank": 12},
    "rank=4.txt.gz": {"rank": 4},
    "node_rank_1.log": {"rank": None, "host": "node 1"},
    "local_rank_2.log": {"local": 2},
    "12345_7_log.out": {"task": 7, "series": ""},
    "slurm-123_4.out": {"task": 4, "series": "slurm-123"},
    "slurm-123.out": {"task": None, "host": ""},
    "job-worker-2.log": {"host": "job-worker-2"},
    "train.log": {"rank": None, "task": None, "host": ""},
}


@pytest.mark.parametrize("path", NAMES)
def test_what_a_path_says(path: str) -> None:
    found = hint(path)
    assert {key: getattr(found, key) for key in NAMES[path]} == NAMES[path]


def test_one_job_of_an_array_is_no_rank(tmp_path: Path) -> None:
    (tmp_path / "slurm-123_4.out").write_text(traceback("ValueError: bad", MAIN))
    assert diagnose(read([str(tmp_path / "slurm-123_4.out")], SIGNATURES)).culprit_ranks == ()


def test_files_of_all_tasks_are_ranks(tmp_path: Path) -> None:
    for task in range(3):
        text = traceback("ValueError: bad", MAIN) if task == 1 else traceback(LOST_NCCL, MAIN, library=True)
        (tmp_path / f"slurm-123_{task}.out").write_text(text)
    paths = [str(path) for path in sorted(tmp_path.iterdir())]

    assert diagnose(read(paths, SIGNATURES)).culprit_ranks == (1,)


def test_local_ranks_of_one_node_of_a_larger_job_are_no_ranks(tmp_path: Path) -> None:
    text = WORLD.format(16) + marked(traceback("ValueError: bad", MAIN), "[default3]:")
    (tmp_path / "a.log").write_text(text)

    assert diagnose(read([str(tmp_path / "a.log")], SIGNATURES)).culprit_ranks == ()


def test_a_rank_of_a_subgroup_is_not_taken_for_a_rank(tmp_path: Path) -> None:
    text = (
        WORLD.format(8)
        + "".join(watchdog(4 + i, 7, member=i) for i in range(3))
        + watchdog(7, 7, "BROADCAST", member=3)
    )
    (tmp_path / "a.log").write_text(text)
    verdict = diagnose(read([str(tmp_path / "a.log")], SIGNATURES))

    assert set(verdict.culprit_ranks) <= {7}
    assert verdict.process_group not in ("0", "default_pg")

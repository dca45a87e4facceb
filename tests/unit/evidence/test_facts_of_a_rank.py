"""What ranks leave on disk and in memory becomes facts; what is missing becomes a reason, never an exception."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
from pathlib import Path

import pytest

from safelaunch import black_box, procfs
from safelaunch.evidence import (
    COLLECTORS,
    cold_start,
    devices,
    errors,
    faults,
    frames,
    groups,
    kernel,
    memory,
    self_report,
)
from safelaunch.evidence import black_box as box_evidence
from safelaunch.evidence import case as cases
from safelaunch.evidence.gather import gather
from safelaunch.model import Evidence, Exit, Incident, WorkerGroup, WorkerProcess

INCIDENT = Incident("exit", 0, (0,), 100.0)

FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/job/loader.py", line 9 in pump

Current thread 0x00007f0000000002 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 1 in linear
  File "/job/my "quoted", line 5 in x.py", line 40 in forward

Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)
"""


def worker(rank_dir: Path | str = "/nowhere", *, rank: int = 0, pid: int | None = None, box: str = "") -> WorkerProcess:
    own = procfs.read(os.getpid())
    assert own is not None
    return WorkerProcess(rank, rank, pid or own.pid, own.start, str(rank_dir), box)


def test_the_stack_is_the_one_of_the_thread_that_crashed() -> None:
    found = frames.parse_fault(FAULT).frames

    assert [(frame.line, frame.function) for frame in found] == [(1, "linear"), (40, "forward")]
    assert found[1].file == '/job/my "quoted", line 5 in x.py'


def test_a_crash_in_a_thread_without_python_shows_the_main_thread() -> None:
    text = FAULT.replace("Current thread", "Thread")

    assert frames.parse_fault(text).frames[0].function == "linear"


@pytest.mark.parametrize("text", ["", "Fatal Python error: Aborted\n\n<no Python frame>\n", "garbage \x00 \ufffd"])
def test_a_fault_without_frames(text: str) -> None:
    assert frames.parse_fault(text).frames == ()


def test_faults_of_an_armed_and_of_an_unwatched_rank(tmp_path: Path) -> None:
    assert "did not load" in faults.collect(INCIDENT, worker(tmp_path), 0).unavailable
    (tmp_path / "fault-1.txt").write_text("")
    assert faults.collect(INCIDENT, worker(tmp_path), 0).data == {"text": "", "armed": True}
    (tmp_path / "fault-2.txt").write_text(FAULT)
    assert faults.collect(INCIDENT, worker(tmp_path), 0).data == {"text": FAULT, "armed": True}


def test_the_earliest_exception_of_a_rank_counts(tmp_path: Path) -> None:
    folder = tmp_path / "rank [0]*"  # names that a pattern would trip over
    folder.mkdir()
    assert errors.collect(INCIDENT, worker(folder), 0).data is None
    for pid, t in ((7, 12.0), (9, 11.0), (8, 13.0)):
        record = {"t": t, "type": str(pid), "message": "", "traceback": ""}
        (folder / f"error-{pid}.json").write_text(json.dumps(record))
    (folder / "error-5.json.123").write_text("{")  # being written
    (folder / "error-6.json").write_text('{"t": [1], "type": true}')  # anybody's

    found = errors.collect(INCIDENT, worker(folder), 0).data
    assert found is not None
    assert (found["t"], found["type"]) == (11.0, "9")


def test_a_black_box_of_an_earlier_process_is_not_this_ranks(tmp_path: Path) -> None:
    path = str(tmp_path / "box")
    black_box.create(path, 1)
    assert "did not open" in box_evidence.collect(INCIDENT, worker(box=path), 0).unavailable
    writer = black_box.Writer(path, 0)
    writer.enter(writer.text("barrier", ("a.py", 1, "main"), "0", ""), 4, 1, -1)

    found = box_evidence.collect(INCIDENT, worker(box=path), 0).data
    assert found is not None
    assert [item["op"] for item in found["collectives"]] == ["barrier"]
    assert "did not open" in box_evidence.collect(INCIDENT, worker(box=path, pid=1), 0).unavailable


def test_a_rank_is_leaving_once_it_shuts_down(tmp_path: Path) -> None:
    path = str(tmp_path / "box")
    black_box.create(path, 1)
    writer = black_box.Writer(path, 0)
    assert not box_evidence.leaving(worker(box=path))
    writer.shutting_down(False)
    assert box_evidence.leaving(worker(box=path))
    assert not box_evidence.leaving(worker(box=path, pid=1))
    assert not box_evidence.leaving(worker(box="/nowhere"))


def test_the_kernels_word_of_a_living_rank() -> None:
    found = kernel.collect(INCIDENT, worker(), 0).data

    assert found is not None
    assert found["state"] in ("R", "S")
    assert int(str(found["Threads"])) >= 1


def test_a_reused_pid_is_not_the_rank() -> None:
    stranger = worker(pid=1)  # start time of another process

    assert kernel.collect(INCIDENT, stranger, 0).unavailable == "the process had ended"


# ---------------------------------------------------------------------------------------------------- gather


def test_every_collector_answers_for_a_rank_that_left_nothing() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    found = gather(INCIDENT, [worker(pid=process.pid)], COLLECTORS, 60)

    assert len(found) == len(COLLECTORS)
    assert all(item.data is None and item.unavailable for item in found)


def test_a_collector_that_fails_is_a_gap() -> None:
    def bad(_incident: Incident, _worker: WorkerProcess, _deadline: float) -> Evidence:
        raise ZeroDivisionError

    found = gather(INCIDENT, [worker()], [bad, kernel.collect], 60)

    assert [bool(item.data) for item in found] == [False, True]
    assert "ZeroDivisionError" in found[0].unavailable


def test_a_pipe_where_a_rank_leaves_its_word_is_not_waited_for(tmp_path: Path) -> None:
    """The supervisor looks there itself: nobody would end the run any more."""
    os.mkfifo(tmp_path / cold_start.FILE)

    assert cold_start.read(worker(tmp_path)) is None


@pytest.mark.parametrize("what", ["groups", "self_report", "device"])
def test_what_a_rank_leaves_beside_its_black_box_is_read_within_bounds(tmp_path: Path, what: str) -> None:
    box = tmp_path / "box"
    line = '{"name": "a", "ranks": [0]}\n' if what == "groups" else '{"pid": 1, "t": [' + "[0], " * 100 + "0]}"
    Path(black_box.beside(str(box), 0, what)).write_text(line * (16 << 20 >> 5))
    collect = {"groups": groups.collect, "self_report": self_report.collect, "device": devices.collect}[what]
    incident = Incident("exit", 0, (0,), 1.0)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (found,) = gather(incident, [worker(tmp_path, box=str(box))], [collect], 10.0)

    assert found.data is None
    assert found.unavailable
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_collector_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def stuck(_incident: Incident, asked: WorkerProcess, _deadline: float) -> Evidence:
        if asked.rank == 1:
            release.wait(60)
        return Evidence("kernel", asked.rank, {"state": "D"})

    try:
        found = gather(INCIDENT, [worker(rank=0), worker(rank=1)], [stuck], 0.5)
    finally:
        release.set()

    assert {item.rank: bool(item.data) for item in found} == {0: True, 1: False}
    assert next(item for item in found if item.rank == 1).unavailable == "not finished after 0.5 s"


# ------------------------------------------------------------------------------------------------- the case


def test_the_case_has_every_rank_with_what_is_known_of_it() -> None:
    ended = WorkerProcess(1, 1, 42, 0, "/nowhere", exit=Exit(1, 101.0))
    group = WorkerGroup(0, 8, 2, (worker(rank=0), ended))
    error = {"type": "KeyError", "message": "'a'", "traceback": "...", "t": 100.5, "chain": [], "location": None}
    evidence = (
        Evidence("kernel", 0, {"state": "S"}),
        Evidence("error", 1, error),
        Evidence("fault", 1, {"text": "", "armed": True}),
        Evidence("stack", 1, unavailable="py-spy: no such process"),
        Evidence("collectives", 1, unavailable="the rank did not open its black box"),
    )
    built = cases.build(INCIDENT, group, evidence, "node-a", 0)

    assert [facts.rank for facts in built.ranks] == [0, 1]
    assert (built.world_size, built.ranks[0].state, built.ranks[0].error) == (8, "S", None)
    assert built.ranks[1].error is not None
    assert built.ranks[1].error.type == "KeyError"
    assert [facts.watched for facts in built.ranks] == [False, True]
    assert built.ranks[1].gaps == "collectives: the rank did not open its black box"  # it had ended: no stack
    assert "KeyError" not in cases.stack_text(built.ranks[0])
    assert "uncaught exception" in cases.stack_text(built.ranks[1])


# ---------------------------------------------------------------------------------------------------- memory


def cgroup(root: Path, line: str, files: dict[str, str]) -> str:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


@pytest.mark.parametrize(
    ("line", "files", "count"),
    [
        ("0::/job\n", {"job/memory.events": V2}, 2),
        ("0::/hidden\n", {"memory.events": V2}, 2),  # the container's mount shows only its own root
        ("0::/\n", {"memory.events": V2}, 2),
        ("7:memory:/job\n0::/\n", {"memory/job/memory.oom_control": V1}, 5),
        ("7:cpu,memory:/hidden\n", {"memory/memory.oom_control": V1}, 5),
        ("7:memory:/job\n", {"memory/job/memory.oom_control": "under_oom 0\n"}, None),
        ("0::/job\n", {}, None),
        ("", {}, None),
    ],
)
def test_the_kernels_count_of_memory_kills(tmp_path: Path, line: str, files: dict[str, str], count: int | None) -> None:
    assert memory.oom_kills(cgroup(tmp_path, line, files)) == count


def test_without_proc_nothing_is_counted(tmp_path: Path) -> None:
    assert memory.oom_kills(str(tmp_path)) is None

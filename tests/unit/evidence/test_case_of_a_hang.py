"""From evidence of living ranks, written by hand, to the case of a hang."""

from __future__ import annotations

import dataclasses
from typing import Any

from safelaunch.evidence import case as cases
from safelaunch.evidence import frames
from safelaunch.model import (
    Evidence,
    Incident,
    Location,
    ProcessGroup,
    RankFacts,
    SourceLine,
    WorkerGroup,
    WorkerProcess,
)

HANG = Incident("hang", 0, (0, 1), 100.0)
WORKERS = tuple(WorkerProcess(rank, rank, 1000 + rank, 5, "/nowhere") for rank in range(2))
GROUP = WorkerGroup(0, 2, 2, WORKERS)
WORKER_PY = "/opt/venv/lib/python3.11/site-packages/safelaunch/worker/collectives.py"
THREADING = "/usr/lib/python3.11/threading.py"


def thread(tid: int, name: str, *lines: tuple[str, int, str], pid: int = 1000) -> dict[str, Any]:
    """A thread as py-spy shows it."""
    found = [{"filename": file, "line": line, "name": function} for file, line, function in lines]
    return {"pid": pid, "os_thread_id": tid, "thread_name": name, "active": False, "frames": found}


MAIN = thread(1000, "MainThread", (WORKER_PY, 40, "collective"), ("/job/train.py", 7, "step"))
SAVER = thread(1007, "saver", ("/job/save.py", 3, "save"), (THREADING, 982, "run"))
BEAT = thread(1009, "safelaunch-beat", (WORKER_PY, 50, "_run"), (THREADING, 982, "run"))


def collective(**changes: Any) -> dict[str, Any]:
    entry = {"op": "all_reduce", "group": "0", "seq": 3, "numel": 8, "dtype": "float32", "done": False, "t": 90.0}
    return {**entry, "thread": 1000, **changes}


def box(**changes: Any) -> dict[str, Any]:
    pulse = {"t": 130.0, "beat": 129.5, "progress": 90.0, "steps": 4, "batches": 5, "exhausted": None, "phases": []}
    return {"collectives": [collective()], **pulse, **changes}


def facts(*evidence: Evidence, earlier: tuple[Evidence, ...] = (), now: float | None = 131.0) -> RankFacts:
    return cases.build(HANG, GROUP, evidence, "h", None, earlier=earlier, now=now).ranks[0]


def functions(found: RankFacts) -> list[str]:
    assert found.stack is not None
    return [frame.function for frame in found.stack.frames]


def test_the_stack_is_that_of_the_thread_that_makes_the_collectives() -> None:
    threads = Evidence("stack", 0, {"threads": [SAVER, BEAT, MAIN], "children": {}})

    assert functions(facts(threads)) == ["step"]  # the main thread; our own frames are left out
    saver = facts(threads, Evidence("collectives", 0, box(collectives=[collective(thread=1007)])))
    assert functions(saver)[0] == "save"
    assert [(stack.thread, stack.name) for stack in saver.stacks] == [(1007, "saver"), (1000, "MainThread")]
    gone = facts(threads, Evidence("collectives", 0, box(collectives=[collective(thread=77)])))
    assert functions(gone) == ["step"]
    assert gone.stack is not None
    assert "save.py" in gone.stack.text
    assert "train.py" in gone.stack.text
    assert "safelaunch" not in gone.stack.text


FAULTHANDLER = f"""Thread 0x00007f01 (most recent call first):
  File "{WORKER_PY}", line 50 in _run
  File "{THREADING}", line 982 in run

Thread 0x00007f02 (most recent call first):
  File "/job/save.py", line 3 in save
  File "{THREADING}", line 982 in run

Current thread 0x00007f03 (most recent call first):
  File "{WORKER_PY}", line 40 in collective
  File "/job/train.py", line 7 in step
  File "/job/train.py", line 30 in <module>
"""


def test_stacks_by_the_ranks_own_handler() -> None:
    found = facts(Evidence("stack", 0, {"faulthandler": FAULTHANDLER, "py_spy": "py-spy: denied", "children": {}}))

    assert functions(found) == ["step", "<module>"]
    assert [(stack.thread, stack.name, stack.source) for stack in found.stacks] == [
        (0, "", "faulthandler"),
        (1000, "MainThread", "faulthandler"),
    ]
    assert found.missing == ()
    assert found.stack is not None
    assert WORKER_PY not in "".join(frame.file for stack in found.stacks for frame in stack.frames)


def test_a_handler_that_wrote_no_frames() -> None:
    assert frames.from_faulthandler("garbage", 1000)[0].frames == ()


def kernel(**changes: Any) -> dict[str, Any]:
    return {"state": "S", "wchan": "x", "TracerPid": "0", "t": 130.0, "cpu_s": 5.0, "io_bytes": 700, **changes}


def test_what_was_used_since_the_look_before() -> None:
    first = Evidence("kernel", 0, kernel(t=128.0, cpu_s=4.5, io_bytes=600))
    now = Evidence("kernel", 0, kernel(syscall="read", file="/data/x", TracerPid="12"))
    alone, after = facts(now).kernel, facts(now, earlier=(first,)).kernel

    assert alone is not None
    assert (alone.syscall, alone.file, alone.tracer) == ("read", "/data/x", 12)
    assert (alone.cpu_s, alone.io_bytes, alone.since_s) == (None, None, None)
    assert after is not None
    assert (after.cpu_s, after.io_bytes, after.since_s) == (0.5, 100, 2.0)
    assert facts().kernel is None


def test_the_stack_of_the_look_before() -> None:
    before = Evidence("stack", 0, {"threads": [thread(1000, "MainThread", ("/job/train.py", 5, "load"))]})
    found = facts(Evidence("stack", 0, {"threads": [MAIN]}), earlier=(before,))

    assert found.earlier is not None
    assert found.earlier.frames == (Location("/job/train.py", 5, "load"),)
    assert functions(found) == ["step"]


def test_ages_are_those_of_when_the_pulse_was_read() -> None:
    found = facts(Evidence("collectives", 0, box()))

    assert (found.beat_age_s, found.quiet_s, found.step, found.batch) == (0.5, 40.0, 4, 5)
    never = facts(Evidence("collectives", 0, box(beat=0.0, progress=0.0)))
    assert (never.beat_age_s, never.quiet_s) == (None, None)
    assert facts(Evidence("collectives", 0, box()), now=None).beat_age_s is None
    assert facts(Evidence("collectives", 0, box(beat=130.0)), now=129.0).beat_age_s == 0.0


def test_recorded_phases_and_the_end_of_a_loader() -> None:
    phase = {"name": "loader", "since": 91.0, "expect_s": 0.0, "thread": 1000}
    found = facts(
        Evidence("collectives", 0, box(phases=[phase], exhausted=99.0)),
        Evidence("recorder", 0, {"collectives": [collective(seq=9)]}),
    )
    assert [(item.name, item.since) for item in found.phases] == [("loader", 91.0)]
    assert found.exhausted == 99.0
    assert found.recorded is not None
    assert [item.seq for item in found.recorded] == [9]
    unread = facts(Evidence("recorder", 0, unavailable="the interpreter does not run (no beat for 9.0 s)"))
    assert unread.recorded is None
    assert unread.gaps == "recorder: the interpreter does not run (no beat for 9.0 s)"


CHILD = {"pid": 1100, "ppid": 1000, "name": "pt_data_worker", "state": "D", "syscall": "read", "file": "/nfs/a"}


def test_the_processes_below_a_rank() -> None:
    reads = thread(1100, "MainThread", ("/job/data.py", 11, "__getitem__"), pid=1100)
    found = facts(
        Evidence("kernel", 0, kernel(children=[CHILD])),
        Evidence("stack", 0, {"threads": [], "children": {"1100": [reads]}, "py_spy": "py-spy: no Python"}),
    )
    (child,) = found.children
    assert (child.pid, child.name, child.kernel.state, child.kernel.file) == (1100, "pt_data_worker", "D", "/nfs/a")
    assert child.stack is not None
    assert child.stack.frames[0].function == "__getitem__"
    assert found.stack is None
    assert found.gaps == "stack: py-spy: no Python"
    text = cases.stack_text(found)
    assert "# process 1100 below the rank: pt_data_worker, state D, in read of /nfs/a\n  Thread 1100" in text
    assert "__getitem__ (/job/data.py:11)" in text
    idle = dataclasses.replace(child, kernel=dataclasses.replace(child.kernel, syscall="", file=""), stack=None)
    assert cases.stack_text(dataclasses.replace(found, children=(idle,))).endswith("pt_data_worker, state D\n")


def test_native_frames_come_after_those_of_python() -> None:
    native = thread(1000, "MainThread", ("/usr/lib/libc.so.6", 0, "read"), ("/job/train.py", 7, "step"))
    found = facts(Evidence("stack", 0, {"threads": [MAIN]}), Evidence("native", 0, {"threads": [native]}))

    assert [stack.native for stack in found.stacks] == [False, True]
    assert functions(found) == ["step"]
    assert "read (/usr/lib/libc.so.6)\n" in cases.stack_text(found)
    assert facts(Evidence("native", 0, unavailable="Python frames explain it")).missing == ()


def test_groups_of_all_ranks_are_merged() -> None:
    def made(rank: int, *groups: tuple[str, list[int]]) -> Evidence:
        return Evidence("groups", rank, {"groups": [{"name": name, "ranks": ranks} for name, ranks in groups]})

    source = [SourceLine("/job/train.py", 7, "x")]
    evidence = (made(0, ("0", [0, 1]), ("1", [0])), made(1, ("0", [0, 1]), ("1", [1])), Evidence("kernel", 9, {}))
    built = cases.build(HANG, GROUP, evidence, "h", None, source=source, now=3.0)

    assert built.groups == (ProcessGroup("0", (0, 1)), ProcessGroup("1", (0,)), ProcessGroup("1", (1,)))
    assert built.source == tuple(source)
    assert built.now == 3.0

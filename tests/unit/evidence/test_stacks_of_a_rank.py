"""Python stacks of real processes: by py-spy, by their own handler, and the reason where neither can."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import living
import pytest
from living import HANG, python, soon, until

from safelaunch import black_box, procfs, pulse
from safelaunch.evidence import case, frames, kernel, native, proc_tasks, spy, stacks
from safelaunch.model import Evidence, Incident, RankFacts, WorkerGroup

WAITS = "import sys\ndef waits_here():\n    print('ready', flush=True)\n    sys.stdin.read()\n"


@pytest.fixture(autouse=True)
def _fresh_scan() -> None:
    proc_tasks.forget()


@pytest.fixture
def with_py_spy() -> None:
    if spy.find() is None:
        pytest.skip("py-spy is not installed")
    if os.geteuid() != 0:
        pytest.skip("py-spy may need rights")


@pytest.mark.usefixtures("with_py_spy")
def test_a_stack_of_a_living_rank_without_stopping_it() -> None:
    with python(WAITS + "waits_here()") as process:
        found = stacks.collect(HANG, living.rank(process.pid), soon())

    assert found.data is not None, found.unavailable
    (stack,) = frames.from_py_spy(found.data["threads"])
    assert "waits_here" in [frame.function for frame in stack.frames]
    assert (stack.thread, stack.name) == (process.pid, "MainThread")
    assert "waits_here" in stack.text


@pytest.mark.usefixtures("with_py_spy")
def test_a_stopped_rank_has_a_stack() -> None:
    with python(WAITS + "waits_here()") as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: procfs.read(process.pid).state == "T")  # type: ignore[union-attr]
        found = stacks.collect(HANG, living.rank(process.pid), soon())

    assert found.data is not None, found.unavailable
    assert found.data["threads"]


@pytest.mark.usefixtures("with_py_spy")
def test_the_stack_of_a_loader_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    source = (
        "import os, sys\nsaid, say = os.pipe()\nif os.fork() == 0:\n"
        "    def reads_a_shard():\n        os.write(say, b'.')\n        open(sys.argv[1]).read()\n"
        "    reads_a_shard()\nos.read(said, 1)\nprint('ready', flush=True)\nsys.stdin.read()"
    )
    with python(source, str(tmp_path / "fifo")) as process:
        worker = living.rank(process.pid)

        def both() -> RankFacts | None:
            proc_tasks.forget()
            evidence = [collect(HANG, worker, soon()) for collect in (kernel.collect, stacks.collect)]
            facts = case.build(HANG, WorkerGroup(0, 1, 1, (worker,)), evidence, "h", None).ranks[0]
            return facts if facts.children and facts.children[0].kernel.syscall in ("openat", "open") else None

        facts = until(both)

    (child,) = facts.children
    assert child.stack is not None
    assert child.stack.frames[0].function == "reads_a_shard"
    assert child.kernel.file == str(tmp_path / "fifo")
    text = case.stack_text(facts)
    assert f"# process {child.pid} below the rank: {child.name}, state S, in {child.kernel.syscall} of " in text
    assert "reads_a_shard" in text


def test_no_stack_of_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["/bin/true"])
    worker = living.rank(process.pid)
    process.wait()

    found = stacks.collect(HANG, worker, soon())
    assert found.data is None
    assert found.unavailable


# ------------------------------------------------------------------------------------- the rank's own handler

HANDLER = (
    "import faulthandler, sys, os, threading\n"
    "faulthandler.register(int(sys.argv[1]), open(sys.argv[2] + f'/stacks-{os.getpid()}.txt', 'w'))\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
)
ARGUMENTS = (str(int(black_box.STACK_SIGNAL)),)


@pytest.fixture
def broken_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spy, "find", lambda: "/bin/false")


@pytest.mark.usefixtures("broken_py_spy")
def test_two_looks_at_once_each_read_the_stacks_once(tmp_path: Path) -> None:
    found: list[Evidence] = []
    with python(HANDLER + WAITS + "waits_here()", *ARGUMENTS, str(tmp_path)) as process:
        worker = living.rank(process.pid, tmp_path)
        looks = [threading.Thread(target=lambda: found.append(stacks.collect(HANG, worker, soon()))) for _ in range(3)]
        for look in looks:
            look.start()
        for look in looks:
            look.join()

    assert [one.data["faulthandler"].count("waits_here") for one in found if one.data is not None] == [1, 1, 1]


@pytest.mark.usefixtures("broken_py_spy")
def test_the_ranks_own_handler_stands_in(tmp_path: Path) -> None:
    with python(HANDLER + WAITS + "waits_here()", *ARGUMENTS, str(tmp_path)) as process:
        worker = living.rank(process.pid, tmp_path)
        first = stacks.collect(HANG, worker, soon())
        second = stacks.collect(HANG, worker, soon())

    assert first.data is not None, first.unavailable
    assert second.data is not None, second.unavailable
    assert first.data["py_spy"] == "py-spy: no output"
    assert second.data["faulthandler"].count("waits_here") == 1  # not those of the look before as well
    found = frames.from_faulthandler(first.data["faulthandler"], process.pid)
    assert [stack.thread for stack in found] == [0, process.pid]
    assert found[-1].frames[0].function == "waits_here"


@pytest.mark.usefixtures("broken_py_spy")
def test_a_stopped_rank_is_sent_no_signal(tmp_path: Path) -> None:
    with python(HANDLER + WAITS + "waits_here()", *ARGUMENTS, str(tmp_path)) as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: procfs.read(process.pid).state == "T")  # type: ignore[union-attr]
        found = stacks.collect(HANG, living.rank(process.pid, tmp_path), soon())

        assert found.unavailable == "py-spy: no output; the rank is stopped and cannot answer a signal"
        os.kill(process.pid, signal.SIGCONT)
    assert (tmp_path / f"stacks-{process.pid}.txt").read_text() == ""


@pytest.mark.usefixtures("broken_py_spy")
def test_a_rank_without_the_handler_is_not_killed() -> None:
    with python(WAITS + "waits_here()") as process:
        found = stacks.collect(HANG, living.rank(process.pid), soon())

        assert found.unavailable == "py-spy: no output; the rank has no handler that writes them"
        assert process.poll() is None


def test_a_py_spy_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o700)
    monkeypatch.setattr(spy, "find", lambda: str(tool))
    with python(WAITS + "waits_here()") as process:
        begun = time.monotonic()
        found = stacks.collect(HANG, living.rank(process.pid), begun + 0.2)

    assert found.unavailable.startswith("py-spy did not answer in time")
    assert time.monotonic() - begun < 5


# --------------------------------------------------------------------------------------------- native frames


def test_native_frames_only_where_python_frames_do_not_explain() -> None:
    with python(WAITS + "waits_here()") as process:
        until(lambda: procfs.read(process.pid).state == "S")  # type: ignore[union-attr]
        worker = living.rank(process.pid)
        assert native.collect(HANG, worker, soon()).unavailable == native.EXPLAINED
        assert native.collect(Incident("exit", 0, (0,), 1.0), worker, soon()).unavailable == native.EXPLAINED


@pytest.mark.usefixtures("with_py_spy")
def test_native_frames_of_a_rank_that_spins() -> None:
    source = "import hashlib\nprint('ready', flush=True)\ndef spins():\n    "
    with python(source + "hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1 << 30)\nspins()") as process:
        found = native.collect(HANG, living.rank(process.pid), soon())

    assert found.data is not None, found.unavailable
    (stack,) = frames.from_py_spy(found.data["threads"], native=True)
    assert stack.native
    functions = [frame.function for frame in stack.frames]
    assert functions.index("spins") > 0
    assert functions[0] != "spins"


def stale_box(path: str, pid: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A slot of the process whose interpreter has stopped to beat."""
    black_box.create(path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        patch.setattr(pulse, "monotonic", lambda: 0.5)
        black_box.Writer(path, 0).pulse.beat()
    return path


def test_a_stopped_rank_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with python(WAITS + "waits_here()") as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: procfs.read(process.pid).state == "T")  # type: ignore[union-attr]
        box = stale_box(str(tmp_path / "box"), process.pid, monkeypatch)
        found = native.collect(HANG, living.rank(process.pid, box=box), soon())

    assert found.unavailable == "a thread of the rank is in state T, and py-spy would hang"


def test_a_rank_is_not_left_stopped_by_a_py_spy_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text('#!/bin/sh\nkill -STOP "$5"\nexec sleep 600\n')
    tool.chmod(0o700)
    monkeypatch.setattr(spy, "find", lambda: str(tool))
    with python(WAITS + "waits_here()") as process:
        box = stale_box(str(tmp_path / "box"), process.pid, monkeypatch)
        found = native.collect(HANG, living.rank(process.pid, box=box), soon(0.5))
        until(lambda: procfs.read(process.pid).state == "S")  # type: ignore[union-attr]

    assert found.unavailable == "py-spy did not answer in time"

"""Numbers out of /proc and cgroups: of processes that really run, and of a node made of files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch import procfs
from safelaunch.evidence import usage
from safelaunch.model import WorkerProcess


@pytest.fixture
def busy() -> Iterator[WorkerProcess]:
    """A process that takes all the time it gets."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        known = procfs.read(process.pid)
        assert known is not None
        yield WorkerProcess(3, 0, process.pid, known.start, "")
    finally:
        process.kill()
        process.wait()


def cpu_s(worker: WorkerProcess) -> float:
    return usage.look([worker]).ranks[worker.rank]["cpu"]


def test_what_a_rank_uses(busy: WorkerProcess) -> None:
    before, ticks = usage.look([busy]), usage.ticks()
    begun = time.monotonic()
    while cpu_s(busy) - before.ranks[3]["cpu"] < 0.2:
        time.sleep(0.02)
    after = usage.look([busy])
    (used,), node = usage.used(before, after)

    assert used.rank == 3
    assert used.seconds == pytest.approx(after.t - before.t, abs=0.01)
    assert used.cpu > 0.1 / used.seconds
    assert set(used.cpus) <= os.sched_getaffinity(0)
    assert used.cpus
    assert node.busy is None or 0.0 <= node.busy <= 1.0
    others = usage.others(ticks, usage.ticks(), time.monotonic() - begun, root=os.getppid())
    assert busy.pid not in [one.pid for one in others]


def test_what_threads_beside_the_main_one_use() -> None:
    source = "import threading\ndef work():\n    while True: pass\nthreading.Thread(target=work).start()"
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        try:
            known = procfs.read(process.pid)
            assert known is not None
            rank = WorkerProcess(3, 0, process.pid, known.start, "")
            before = usage.look([rank])
            while usage.look([rank]).ranks[3].get("beside", 0.0) - before.ranks[3]["beside"] < 0.2:
                time.sleep(0.02)
            (used,), _ = usage.used(before, usage.look([rank]))
            assert used.beside is not None
            assert 0.5 * used.cpu < used.beside
        finally:
            process.kill()


def test_other_processes_are_named(busy: WorkerProcess) -> None:
    before, begun = usage.ticks(), time.monotonic()
    start = cpu_s(busy)
    while cpu_s(busy) - start < 0.3:
        time.sleep(0.02)
    others = usage.others(before, usage.ticks(), 1.0, root=2**22)

    assert time.monotonic() > begun
    assert busy.pid in [one.pid for one in others]
    assert all(one.cores >= usage.NOTABLE for one in others)


def test_a_pid_that_was_used_again_is_another_process(busy: WorkerProcess) -> None:
    earlier = WorkerProcess(3, 0, busy.pid, busy.start - 1, "")

    assert usage.look([earlier]).ranks == {}


@pytest.mark.parametrize(("text", "cpus"), [("0-2,8", (0, 1, 2, 8)), ("5", (5,)), ("", ()), ("0-1,4-5", (0, 1, 4, 5))])
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert usage.cpu_list(text) == cpus


def node(root: Path, *, idle: int, stalled: int, throttled: int, cgroup: str = "0::/job\n") -> usage.Load:
    files = {
        "proc/stat": f"cpu  1000 0 500 {idle} 100 0 0 0 0 0\ncpu0 0 0 0 0\n",
        "proc/pressure/memory": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\nfull avg10=0 total=9\n",
        "proc/self/cgroup": cgroup,
        "sys/fs/cgroup/cpu.stat": f"usage_usec 1\nthrottled_usec {throttled}\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": f"nr_periods 1\nthrottled_time {throttled * 1000}\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return usage.look([], str(root))


@pytest.mark.parametrize("cgroup", ["0::/job\n", "4:memory:/a\n3:cpu,cpuacct:/job\n0::/\n"])
def test_what_the_node_does(cgroup: str, tmp_path: Path) -> None:
    before = node(tmp_path, idle=1000, stalled=0, throttled=0, cgroup=cgroup)
    after = node(tmp_path, idle=1300, stalled=500_000, throttled=250_000, cgroup=cgroup)
    seconds = 2.0
    found = usage._node_usage(before.node, after.node, seconds)

    assert found.busy == 0.0
    assert found.memory_pressure == 0.25
    assert found.throttled == 0.125
    assert found.io_pressure is None


def test_a_node_that_says_nothing(tmp_path: Path) -> None:
    found = usage._node_usage(usage.look([], str(tmp_path)).node, {}, 1.0)

    assert (found.busy, found.throttled, found.memory_pressure) == (None, None, None)

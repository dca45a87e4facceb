"""Runs safelaunch and torchrun in turn, so that a machine whose speed drifts is fair to both."""

from __future__ import annotations

import compileall
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "rigs")]

# As an installer has done with torch: where PYTHONDONTWRITEBYTECODE is set, each launch would compile us again.
compileall.compile_dir(REPOSITORY / "safelaunch", quiet=1)

LAUNCHERS = {
    "safelaunch": (sys.executable, "-m", "safelaunch"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
}
COLD = {"--no-warm-start": (*LAUNCHERS["safelaunch"], "--no-warm-start")}
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
LEAVE_S = 20.0  # for what a launcher has left behind

T = TypeVar("T")
Measure = Callable[[Sequence[str], Path], T]


def environment(**changes: str) -> dict[str, str]:
    """Of a launch: this package comes first, whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **changes}


def run(command: Sequence[str], folder: Path) -> tuple[float, str]:
    """Seconds from start to exit of one process, and its output; it must succeed."""
    begun = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - begun
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return elapsed, ended.stdout


def wall(command: Sequence[str], folder: Path) -> float:
    """Seconds from start to exit of one process; it must succeed."""
    return run(command, folder)[0]


def rate(command: Sequence[str], folder: Path) -> float:
    """What one process prints after `rate`; it must succeed."""
    return next(float(line.split()[1]) for line in run(command, folder)[1].splitlines() if line.startswith("rate "))


def compare(
    arguments: Sequence[str],
    runs: int,
    measure: Measure[T],
    launchers: Mapping[str, Sequence[str]] = LAUNCHERS,
    *,
    warm_up: bool = True,
) -> dict[str, list[T]]:
    """What `measure` says of `runs` runs of each launcher with the same arguments, in turn.

    Args:
        arguments: of the launch.
        runs: that count.
        measure: takes the command and a folder.
        launchers: to compare.
        warm_up: make one run of each before, which does not count.
    """
    found: dict[str, list[T]] = {name: [] for name in launchers}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1 if warm_up else 0, runs):
            for name, launcher in launchers.items():
                value = measure([*launcher, *arguments], Path(folder))
                if number >= 0:
                    found[name].append(value)
    return found


def adopt_orphans() -> None:
    """Become the parent of what launchers leave behind, so that `children_cpu_s` counts it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def children_cpu_s() -> float:
    """Seconds of CPU that all processes below this one have used that have ended, and have been waited for. All must
    have ended or be about to."""
    deadline = time.monotonic() + LEAVE_S
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            time.sleep(0.005)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree(pid: int) -> list[int]:
    """A process and all that are below it."""
    from safelaunch import procfs

    return [pid, *(process.pid for process in procfs.descendants(pid, procfs.scan()))]


def pss_mib(pids: Sequence[int]) -> float:
    """The memory of processes together: what several share is counted once among them (PSS, proc(5))."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def end(process: subprocess.Popen[str]) -> None:
    """End a launcher and what it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""Living processes for tests: they say when they are ready, and are ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from safelaunch import procfs
from safelaunch.model import Incident, WorkerProcess

HANG = Incident("hang", 0, (0,), 100.0)
T = TypeVar("T")


@contextmanager
def python(source: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that runs `source`, from when it has printed a line. It has a pipe for stdin."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        for child in procfs.descendants(process.pid, procfs.scan()):
            procfs.end([child], 9)
        process.kill()
        process.communicate()


def rank(pid: int, rank_dir: Path | str = "/nowhere", box: str = "") -> WorkerProcess:
    """The process as rank 0."""
    process = procfs.read(pid)
    assert process is not None
    return WorkerProcess(0, 0, pid, process.start, str(rank_dir), box)


def until(look: Callable[[], T | None], seconds: float = 30) -> T:
    """What `look` gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def soon(seconds: float = 30) -> float:
    """A deadline that is far enough away."""
    return time.monotonic() + seconds

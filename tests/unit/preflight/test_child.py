from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from safelaunch import procfs
from safelaunch.preflight.machine.child import Children, Ended


def run(children: Children, source: str, deadline_s: float = 60.0) -> Ended:
    return children.run([sys.executable, "-c", source], deadline_s, os.environ)


def test_output_and_status() -> None:
    ended = run(Children(), "import sys; print('out'); print('a\\n\\nb\\n', file=sys.stderr); sys.exit(3)")
    assert (ended.returncode, ended.stdout, ended.last_line, ended.timed_out) == (3, "out\n", "b", False)


def test_at_the_deadline_the_whole_session_is_killed_and_its_output_kept() -> None:
    source = """
import os, signal, sys
if (pid := os.fork()):
    print(pid, flush=True)
signal.pause()
"""
    ended = run(Children(), source, deadline_s=4.0)
    assert ended.timed_out
    assert ended.returncode == -9
    until = time.monotonic() + 10.0  # a killed process takes a moment to go
    while (grandchild := procfs.read(int(ended.stdout))) is not None and grandchild.state not in "ZX":
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_child_that_cannot_be_reaped_is_abandoned() -> None:
    # A grandchild in a session of its own keeps the pipes open, as a child in D state would: neither ends on a kill.
    source = """
import os, sys, time
if (pid := os.fork()):
    print(pid, flush=True)
    os.waitpid(pid, 0)
os.setsid()
time.sleep(20)
"""
    ended = run(Children(), source, deadline_s=4.0)
    assert ended.timed_out
    assert ended.elapsed_s < 15.0  # the grandchild holds the pipes for 20 s
    os.kill(int(ended.stdout), 9)


def test_end_kills_what_runs_and_starts_no_more(tmp_path: Path) -> None:
    children = Children()
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    results: list[Ended] = []
    source = f"import signal; open({str(fifo)!r}, 'w').close(); signal.pause()"
    thread = threading.Thread(target=lambda: results.append(run(children, source)))
    thread.start()
    fifo.read_text()  # returns when the child has opened it
    children.end()
    thread.join(30.0)
    assert results[0].returncode == -9
    with pytest.raises(OSError, match="over"):
        run(children, "")

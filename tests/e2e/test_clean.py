"""`safelaunch clean`: what a killed launcher left is shown with what it holds, and ended after a yes alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import FAULTS, environment, launch, newest_run, start, wait_for_lines

from safelaunch import procfs

DETACHES = """
import os, subprocess, sys, time
LISTENS = "import socket, time; it = socket.create_server(('127.0.0.1', 0)); print(it.getsockname()[1], flush=True)"
process = subprocess.Popen(
    [sys.executable, "-c", LISTENS + "; time.sleep(600)"], start_new_session=True, stdout=subprocess.PIPE
)
os.write(1, b"detached %d listens on %s" % (process.pid, process.stdout.readline()))
time.sleep(600)
"""


def clean(folder: Path, *options: str, answer: str | None = None) -> tuple[int, str]:
    """The exit code of `safelaunch clean RUN`, for the one run below a folder, and what it said; on a terminal where
    there is an answer. Other runs on this machine are not ours to end."""
    command = [sys.executable, "-m", "safelaunch", "clean", *options, str(newest_run(folder))]
    if answer is None:
        ended = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr
    ours, theirs = os.openpty()
    with subprocess.Popen(command, env=environment(), stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, f"{answer}\n".encode())
        said = process.communicate(timeout=60)[0]
    os.close(ours)
    os.close(theirs)
    return process.returncode, said


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[procfs.Process, str]]:
    """A process that a rank detached before launcher and guard were killed, and the port on which it listens."""
    (tmp_path / "train.py").write_text(DETACHES)
    launcher = start("--nproc-per-node", 1, "--preflight", "off", "train.py", cwd=tmp_path)
    words = wait_for_lines(launcher, "detached", 1)[-1].split()
    process = procfs.read(int(words[1]))
    assert process is not None
    os.kill(launcher.pid, signal.SIGSTOP)  # or it would start another guard
    for child in procfs.scan():
        if child.ppid == launcher.pid:  # its guard, too
            os.kill(child.pid, signal.SIGKILL)
    launcher.kill()
    launcher.wait()
    try:
        yield process, words[-1]
    finally:
        procfs.end([process], signal.SIGKILL)


def test_what_was_left_is_ended_after_a_yes_alone(left: tuple[procfs.Process, str], tmp_path: Path) -> None:
    process, port = left

    code, said = clean(tmp_path)
    assert code == 1
    assert f"of {newest_run(tmp_path)}, whose launcher is gone:" in said
    row = next(line for line in said.splitlines() if f"pid {process.pid} " in line)
    assert f"port {port}" in row
    assert "MiB of memory" in row
    assert "nothing was ended: --yes ends" in said

    code, said = clean(tmp_path, answer="n")
    assert code == 1
    assert not procfs.is_gone(process)

    code, said = clean(tmp_path, answer="y")
    assert code == 0, said
    assert procfs.is_gone(process)
    assert f"pid {process.pid} " not in clean(tmp_path)[1]


def test_what_successful_ranks_detached_is_ended_only_where_it_is_asked_for(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 1, FAULTS / "detaches.py", "forever", cwd=tmp_path)
    process = procfs.read(int(ended.out.split()[1]))
    assert process is not None
    try:
        _, said = clean(tmp_path, "--yes")
        assert f"pid {process.pid} " in said.partition("--detached ends it")[2]
        assert not procfs.is_gone(process)

        clean(tmp_path, "--yes", "--detached")
        assert procfs.is_gone(process)
    finally:
        procfs.end([process], signal.SIGKILL)


def test_a_running_job_is_no_leftover(tmp_path: Path) -> None:
    launcher = start("--nproc-per-node", 1, FAULTS / "family.py", cwd=tmp_path)
    wait_for_lines(launcher, "ready", 1)
    try:
        pids = [process.pid for process in procfs.descendants(launcher.pid, procfs.scan())]
        _, said = clean(tmp_path, "--yes")
        assert not [pid for pid in pids if f"pid {pid} " in said]
        assert launcher.poll() is None
    finally:
        launcher.terminate()
        launcher.wait(60)


ORPHAN = "import os, time; os.fork() and os._exit(0); print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.skipif(os.geteuid() != 0, reason="a new pid namespace needs root")
def test_ranks_of_other_launchers_are_shown_and_never_touched(tmp_path: Path) -> None:
    (tmp_path / "init").symlink_to("/bin/sh")  # the first process of the namespace, by its name
    (tmp_path / "run.sh").write_text(
        f"RANK=1 WORLD_SIZE=2 {sys.executable} -c '{ORPHAN}' > pid\n"
        f"{sys.executable} -m safelaunch clean --yes\n"
        "kill -0 $(cat pid) && echo it lives\n"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", str(tmp_path / "init"), "run.sh"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)

    assert "left alone, as safelaunch did not start it: ranks whose launcher is gone:" in ended.stdout, ended
    assert f"pid {(tmp_path / 'pid').read_text().strip()} (" in ended.stdout
    assert ended.stdout.endswith("it lives\n")

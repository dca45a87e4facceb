"""The guard with real processes. Every member of a run holds a pipe: its end of file is the member's end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import environment

from safelaunch import procfs

# The supervisor's part: a guard, one process that it ends by session, one by token, and one that is none of its.
HOLDER = """
import json, os, signal, subprocess, sys
from safelaunch.launch.guard import Guard

scratch, mode, *writers = sys.argv[1:]
guard = Guard("unit-test-token", scratch)
if mode == "guard dies":
    os.kill(guard.pid, signal.SIGKILL)
    os.waitpid(guard.pid, 0)

def start(writer, **marks):
    # Deaf to everything that asks politely, and with a child of its own that is as deaf.
    body = (
        "import os, signal\\n"
        "for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\\n"
        "os.fork()\\n"
        f"os.write({writer}, b'.')\\n"
        "while True: signal.pause()"
    )
    command = [sys.executable, "-S", "-c", body]
    return subprocess.Popen(command, env=marks, pass_fds=[int(writer)], start_new_session=True).pid

by_session = start(writers[0])
by_token = start(writers[1], SAFELAUNCH_RUN_TOKEN="unit-test-token")
other = start(writers[2], SAFELAUNCH_RUN_TOKEN="unit-test-token-of-another")
guard.watch(by_session)
if mode == "guard dies":
    guard.start()
print(json.dumps({"guard": guard.pid, "other": other, "all": [by_session, by_token, other]}), flush=True)
sys.stdin.readline()
if mode == "goodbye":
    guard.dismiss()
    print("dismissed", flush=True)
signal.pause()
"""


class Holder:
    """The process with the guard, and the pipes of what it started."""

    def __init__(self, scratch: Path, mode: str) -> None:
        pipes = [os.pipe() for _ in range(3)]
        writers = [writer for _, writer in pipes]
        self.readers = [reader for reader, _ in pipes]
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(scratch), mode, *map(str, writers)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=writers,
        )
        for writer in writers:
            os.close(writer)
        self.said: dict[str, Any] = json.loads(self.line())
        for reader in self.readers:  # both processes of each
            ready = b""
            while len(ready) < 2:
                ready += os.read(reader, 2)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self, number: int) -> bool:
        """Block until all processes of this pipe have ended."""
        return bool(select.select([self.readers[number]], [], [], 30)[0]) and os.read(self.readers[number], 1) == b""

    def lives(self, number: int) -> bool:
        return not select.select([self.readers[number]], [], [], 0)[0]

    def close(self) -> None:
        for pid in self.said["all"]:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.communicate()
        for reader in self.readers:
            os.close(reader)


def wait_for(pid: int) -> None:
    """Block until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([descriptor], [], [], 30)[0]
    os.close(descriptor)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "slot").write_text("")
    return folder


@pytest.fixture(params=["plain"])
def holder(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Holder]:
    made = Holder(scratch, request.param)
    yield made
    made.close()


def test_what_a_killed_supervisor_leaves_is_ended(holder: Holder, scratch: Path) -> None:
    holder.kill()

    assert holder.ended(0)  # by its session, with an environment that says nothing
    assert holder.ended(1)  # by the token, in a session that nobody named
    wait_for(holder.said["guard"])
    assert holder.lives(2)  # another run's
    assert not scratch.exists()


@pytest.mark.parametrize("holder", ["goodbye"], indirect=True)
def test_after_a_goodbye_it_touches_nothing(holder: Holder, scratch: Path) -> None:
    holder.process.stdin.write("\n")  # type: ignore[union-attr]
    holder.process.stdin.flush()  # type: ignore[union-attr]
    assert holder.line() == "dismissed\n"
    assert procfs.read(holder.said["guard"]) is None  # not even as a zombie
    holder.kill()

    assert [holder.lives(number) for number in range(3)] == [True, True, True]
    assert scratch.exists()


@pytest.mark.parametrize("holder", ["guard dies"], indirect=True)
def test_a_guard_that_was_started_again_knows_the_sessions(holder: Holder, scratch: Path) -> None:
    holder.kill()

    assert holder.ended(0)
    assert holder.ended(1)
    wait_for(holder.said["guard"])
    assert not scratch.exists()


def test_it_waits_as_long_as_the_supervisor_lives(holder: Holder) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        os.kill(holder.said["guard"], signum)  # Ctrl-C reaches a whole process group

    guard = procfs.read(holder.said["guard"])
    assert guard is not None
    assert guard.sid == guard.pid
    assert all(holder.lives(number) for number in range(3))
    holder.kill()
    assert holder.ended(0)

"""procfs against real processes, among them some with names made to mislead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from safelaunch import procfs

NAMES = ["a b", ") R 1 1 1", "((", "x) Z (", ")", "ends with ) "]


@contextmanager
def child(setup: str = "", **arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python that has run `setup` and waits; its stdin keeps it alive."""
    source = f"import ctypes, os, signal, sys\n{setup}\nprint('ready', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **arguments,  # type: ignore[call-overload]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def look(pid: int) -> procfs.Process:
    found = procfs.read(pid)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_names_with_spaces_and_parentheses(name: str) -> None:
    with child(f"ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); os.setsid()") as process:
        with open(f"/proc/{process.pid}/comm") as file:
            assert file.read() == name[:15] + "\n"

        found = look(process.pid)

        assert (found.pid, found.ppid) == (process.pid, os.getpid())
        assert (found.pgid, found.sid) == (process.pid, process.pid)
        assert found.state in "SR"
        assert found.start >= look(os.getpid()).start


def test_a_process_that_is_gone() -> None:
    with child() as process:
        pid = process.pid
    assert procfs.read(pid) is None


def test_a_zombie_is_told_from_the_living() -> None:
    with child() as process:
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert look(process.pid).state == "Z"


def test_scan_sees_us_and_our_children() -> None:
    with child() as process:
        assert {os.getpid(), process.pid} <= {found.pid for found in procfs.scan()}


def test_descendants_are_all_below_and_nobody_else() -> None:
    def process(pid: int, ppid: int) -> procfs.Process:
        return procfs.Process(pid, ppid, pid, pid, "S", 0)

    everyone = [process(1, 0), process(7, 1), process(9, 7), process(5, 9), process(8, 7), process(3, 1)]

    assert {found.pid for found in procfs.descendants(7, everyone)} == {9, 5, 8}
    assert procfs.descendants(5, everyone) == []


def test_environment_entries_are_compared_whole() -> None:
    with child(env={**os.environ, "SAFELAUNCH_RUN_TOKEN": "abc123"}) as process:
        assert procfs.in_environ(process.pid, b"SAFELAUNCH_RUN_TOKEN=abc123")
        assert not procfs.in_environ(process.pid, b"SAFELAUNCH_RUN_TOKEN=abc")
        assert not procfs.in_environ(process.pid, b"RUN_TOKEN=abc123")
    assert not procfs.in_environ(process.pid, b"SAFELAUNCH_RUN_TOKEN=abc123")


def test_caught_signals() -> None:
    with child("signal.signal(signal.SIGUSR1, lambda *_: None); signal.signal(signal.SIGUSR2, signal.SIG_IGN)") as one:
        assert procfs.catches(one.pid, signal.SIGUSR1)
        assert not procfs.catches(one.pid, signal.SIGUSR2)
        assert not procfs.catches(one.pid, signal.SIGTERM)
    assert not procfs.catches(one.pid, signal.SIGUSR1)


def test_a_signal_goes_to_the_very_process() -> None:
    with child() as process:
        found = look(process.pid)
        earlier = procfs.Process(found.pid, found.ppid, found.pgid, found.sid, found.state, found.start - 1)

        assert not procfs.send(earlier, signal.SIGKILL)  # one that had this pid before
        assert process.poll() is None
        assert procfs.send(found, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        assert not procfs.send(found, signal.SIGKILL)


def test_a_stopped_process_acts_on_its_end() -> None:
    with child() as process:
        found = look(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

        procfs.end([found], signal.SIGTERM)

        assert process.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("name", ["\rUid: 0", "\x0bUid: 1 1 1", "x\x85Uid: 7"])
def test_a_process_does_not_say_whose_it_is_by_its_name(name: str) -> None:
    """The kernel escapes newlines there, and no other end of a line that Python knows."""
    with child(f"ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)") as process:
        assert procfs.owner(process.pid) == os.geteuid()
        assert procfs.status(process.pid, "Uid") == [str(os.geteuid())] * 4
        assert not procfs.catches(process.pid, signal.SIGUSR1)

"""Signals in a rank that calls `should_stop()`: those that the script has left to the kernel end it no more."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import environment

from safelaunch import black_box

RANK = """
import os, signal, sys
import safelaunch
from safelaunch import black_box, stop_words
from safelaunch.worker import bootstrap
box = black_box.Writer(sys.argv[1], 0)
bootstrap._arm_should_stop(box.stop)
{before}
assert safelaunch.should_stop() is False
{after}
"""


def run(tmp_path: Path, before: str, after: str) -> subprocess.CompletedProcess[str]:
    """A process with the slot of a rank, which calls `should_stop()` between these lines."""
    path = str(tmp_path / "black_box")
    black_box.create(path, 1)
    command = [sys.executable, "-c", RANK.format(before=before, after=after), path]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGTERM"])
def test_a_signal_without_a_handler_is_noted(name: str, tmp_path: Path) -> None:
    after = f"os.kill(os.getpid(), signal.{name})\nprint(signal.Signals(box.stop.words[stop_words.ASKED]).name)"

    ended = run(tmp_path, "", after)

    assert (ended.returncode, ended.stdout) == (0, f"{name}\n"), ended.stderr


def test_the_script_keeps_its_own_handlers(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGUSR1, lambda *_: print('mine'))\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
    after = "os.kill(os.getpid(), signal.SIGUSR1)\nos.kill(os.getpid(), signal.SIGTERM)\n"
    after += "print(signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, box.stop.words[stop_words.ASKED])\n"
    after += "print(box.stop.words[stop_words.CAUGHT] == 1 << signal.SIGUSR2)"

    ended = run(tmp_path, before, after)

    assert (ended.returncode, ended.stdout.split()) == (0, ["mine", "True", "0", "True"]), ended.stderr


def test_a_process_that_the_rank_has_forked_ends_by_sigterm_and_is_no_rank(tmp_path: Path) -> None:
    after = """
pid = os.fork()
if pid == 0:
    os.write(1, b"%r " % safelaunch.should_stop())
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), box.stop.words[stop_words.CALLS])
"""

    ended = run(tmp_path, "", after)

    assert (ended.returncode, ended.stdout.split()) == (0, ["False", str(-signal.SIGTERM), "1"]), ended.stderr


def test_who_is_to_end_the_rank_takes_a_signal_that_does(tmp_path: Path) -> None:
    after = """
found = [black_box.ending(sys.argv[1], 0, os.getpid(), one) for one in (signal.SIGTERM, signal.SIGINT)]
print([signal.Signals(one).name for one in found], black_box.ending(sys.argv[1], 0, 1, signal.SIGTERM))
"""

    ended = run(tmp_path, "", after)

    assert ended.stdout == f"['SIGKILL', 'SIGINT'] {int(signal.SIGTERM)}\n", ended.stderr

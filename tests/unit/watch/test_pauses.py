"""When a person is at the keyboard, and when it only looks so."""

from __future__ import annotations

import pytest

from safelaunch.model import Exit, Kernel, Location, RankFacts, Stack
from safelaunch.watch.pauses import paused

STEP = Location("/home/ada/project/train.py", 88, "train_step")
LIB = "/usr/lib/python3.11"
SITE = "/opt/venv/lib/python3.11/site-packages"


def rank(number: int = 0, kernel: Kernel | None = None, *frames: Location, ended: bool = False) -> RankFacts:
    return RankFacts(
        number,
        number,
        4100 + number,
        stack=Stack(frames or (STEP,), "py-spy"),
        kernel=kernel,
        exit=Exit(0, 1.0) if ended else None,
    )


def frame(file: str, function: str = "interaction") -> Location:
    return Location(file, 10, function)


ASLEEP = Kernel("S", "", "clock_nanosleep")
POLLS = Kernel("S", "do_select", "select", "/dev/pts/3")


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel("S", "n_tty_read", "read", "/dev/pts/3"),
        Kernel("S", "n_tty_read", "read", "/dev/tty"),
        Kernel("S", "n_tty_read", "read", "/dev/tty1"),
        Kernel("S", "n_tty_read", "read", "/dev/console"),
        Kernel("t", "ptrace_stop", "", tracer=77),
        Kernel("S", "", "futex", tracer=77),
    ],
)
def test_a_terminal_or_a_tracer_stops_the_clocks(kernel: Kernel) -> None:
    why = paused([rank(0, ASLEEP), rank(1, kernel)])

    assert "rank 1" in why
    assert ("77" in why) == bool(kernel.tracer)


@pytest.mark.parametrize(
    "file",
    [
        f"{LIB}/pdb.py",
        f"{LIB}/bdb.py",
        f"{LIB}/cmd.py",
        f"{LIB}/code.py",
        f"{SITE}/debugpy/_vendored/pydevd/pydevd.py",
        f"{SITE}/IPython/terminal/embed.py",
        f"{SITE}/ipdb/__main__.py",
        f"{SITE}/pudb/debugger.py",
    ],
)
def test_a_debugger_on_the_stack_stops_the_clocks(file: str) -> None:
    # It may wait in a way of its own, such as a poll.
    assert "rank 2 is in a debugger" in paused([rank(2, POLLS, frame(file), STEP)])


def test_a_debugger_is_seen_where_the_kernel_was_not_asked() -> None:
    assert paused([rank(0, None, frame(f"{LIB}/pdb.py"), STEP)])


@pytest.mark.parametrize(
    "kernel",
    [
        ASLEEP,
        Kernel("S", "", "read", "/data/shard-17"),
        Kernel("S", "pipe_read", "read", "pipe:[3311]"),
        Kernel("S", "", "read", "/dev/shm/tty"),
        Kernel("S", "", "write", "/dev/pts/3"),
        Kernel("S", "", "read", "/data/dev/tty"),
        Kernel("T", "do_signal_stop"),
        None,
    ],
)
def test_other_waits_do_not(kernel: Kernel | None) -> None:
    assert paused([rank(0, kernel)]) == ""


@pytest.mark.parametrize("name", ["pdb.py", "cmd.py", "code.py", "bdb.py"])
def test_a_file_of_the_users_may_be_called_like_a_debugger(name: str) -> None:
    # pdb: also what a protein is kept in.
    assert paused([rank(0, ASLEEP, Location(f"/home/ada/project/{name}", 5, "load"), STEP)]) == ""


@pytest.mark.parametrize("folder", ["code", "cmd", "pdb"])
def test_a_folder_of_the_users_may_be_called_like_a_debugger(folder: str) -> None:
    assert paused([rank(0, ASLEEP, Location(f"/home/ada/{folder}/train.py", 5, "main"))]) == ""


def test_the_dead_do_not_stop_the_clocks() -> None:
    assert paused([rank(0, Kernel("S", "", "read", "/dev/pts/3"), ended=True)]) == ""


def test_nobody_is_nobody() -> None:
    assert paused([]) == ""

"""`safelaunch top` in a terminal, beside real ranks."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, environment, newest_run, start

pyte = pytest.importorskip("pyte")


class Terminal:
    """A command in a terminal of its own, of which the screen is kept."""

    def __init__(self, *command: object, cwd: Path, columns: int = 80, lines: int = 24, **changes: str | None) -> None:
        self._ours, theirs = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            [*SAFELAUNCH, *map(str, command)],
            cwd=cwd,
            env=environment(TERM="xterm-256color", COLORTERM=None, **changes),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, holds: Callable[[str], bool]) -> list[str]:
        """Wait until the screen is so; the test's timeout is the limit."""
        while not holds("\n".join(self._screen.display)):
            if select.select([self._ours], [], [], 0.5)[0]:
                self._stream.feed(os.read(self._ours, 1 << 16))
        return [line.rstrip() for line in self._screen.display]

    def drain(self) -> None:
        """Read to the end, as a terminal does."""
        try:
            while os.read(self._ours, 1 << 16):
                pass
        except OSError:
            pass  # EIO: nobody has it open any more
        self.close()

    def close(self) -> None:
        """Nobody is in front of it any more."""
        os.close(self._ours)


@pytest.fixture
def slow_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Two ranks that train until a file `enough` is there; rank 1 is slow from step 40 on."""
    script = (FAULTS / "slow.py", "sleeps_longer", "optimizer", 1, 40, 600)
    process = start("--preflight", "off", "--nproc-per-node", 2, *script, cwd=tmp_path)
    yield process
    (tmp_path / "enough").touch()
    process.communicate(timeout=60)


@pytest.mark.long  # a terminal that is resized waits for more than one of a machine at work gives it
@pytest.mark.usefixtures("slow_run")
def test_a_slow_rank_is_seen_and_the_end_too(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    while newest_run(tmp_path) is None or not (newest_run(tmp_path) / "run.json").exists():  # type: ignore[operator]
        select.select([], [], [], 0.1)
    terminal = Terminal("top", cwd=tmp_path)

    lines = terminal.until(lambda text: "~1 " in text and "SL503" in text)
    rows = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0].lstrip("~!").isdecimal()]
    assert rows[:2] == ["~1", "0"]  # the late one first
    assert any(line.startswith(f"run {newest_run(tmp_path).name}") for line in lines)  # type: ignore[union-attr]

    terminal.resize(200, 50)
    terminal.until(lambda text: "slow.py:" in text and "past" in text and "host" in text)

    terminal.press("\r")
    terminal.until(lambda text: "stacks of rank 1" in text and "sleeps_longer" in text)
    terminal.press("q")
    terminal.until(lambda text: "past" in text)

    (tmp_path / "enough").touch()
    terminal.until(lambda text: "has ended well" in text)
    terminal.press("q")
    terminal.drain()
    assert terminal.process.wait(30) == 0


@pytest.mark.usefixtures("slow_run")
def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    while newest_run(tmp_path) is None or not (newest_run(tmp_path) / "run.json").exists():  # type: ignore[operator]
        select.select([], [], [], 0.1)
    terminal = Terminal("top", cwd=tmp_path)
    terminal.until(lambda text: "ranks on" in text)

    terminal.close()

    terminal.process.wait(60)


def test_without_a_terminal_it_is_a_table_and_the_run_does_not_notice(
    slow_run: subprocess.Popen[str], tmp_path: Path
) -> None:
    while newest_run(tmp_path) is None or not (newest_run(tmp_path) / "run.json").exists():  # type: ignore[operator]
        select.select([], [], [], 0.1)
    rows: list[list[str]] = []
    while not rows or rows[0][-5] == "-":  # until there are step times
        told = subprocess.run(
            [*SAFELAUNCH, "top"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        rows = [
            line.split()
            for line in told.stdout.splitlines()
            if line.split()[:1] and line.split()[0].lstrip("~!").isdecimal()
        ]
    assert "\x1b" not in told.stdout
    assert {row[0].lstrip("~!") for row in rows} == {"0", "1"}

    (tmp_path / "enough").touch()
    _, said = slow_run.communicate(timeout=60)
    assert slow_run.returncode == 0
    assert "SL902" not in said


def test_a_run_of_nobody_and_no_library_are_told(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("")
    for arguments, told in (
        (["top"], "error[SL001]: no run goes on below"),
        (["top", "nobody"], "error[SL001]: there is no run nobody"),
        (["top", "--every", "never"], "error[SL001]: --every never"),
    ):
        done = subprocess.run(
            [*SAFELAUNCH, *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert told in done.stderr


def test_a_terminal_without_the_library_is_told_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['textual'] = None; from safelaunch.__main__ import main; main()"
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", hidden, "top"],
        cwd=tmp_path,
        env=environment(TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:
        pass
    os.close(ours)

    assert done.wait(30) == 2
    assert b"pip install 'safelaunch[top]', or say --plain" in said

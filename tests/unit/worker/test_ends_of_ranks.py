"""Fatal signals, calls of exit, shutdown, and the agent's death."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import environment
from ranks import rank_environment, run

from safelaunch.evidence.frames import parse_fault

SCRIPT = "import ctypes, os, signal, sys\ndef end():\n    {}\nend()\n"


@pytest.mark.parametrize(
    ("end", "signum"),
    [("ctypes.string_at(0)", 11), ("os.abort()", 6), ("os.kill(os.getpid(), signal.SIGBUS)", 7)],
)
def test_a_fatal_signal_leaves_its_stack(tmp_path: Path, end: str, signum: int) -> None:
    rank = run(tmp_path, SCRIPT.format(end))

    assert rank.code == -signum
    frames = parse_fault(rank.fault).frames
    assert (str(tmp_path / "script.py"), 3, "end") in [(frame.file, frame.line, frame.function) for frame in frames]
    assert rank.errors() == []
    assert rank.box is not None
    assert rank.box.shut_down is None


HANDLERS = """
import functools, os, signal, sys
class Runner:
    def on_signal(self, signum, frame):
        self.leave()
    def on_any(self, *args):
        self.leave()
    def leave(self):
        sys.exit(0)
runner = Runner()
def plain(number, frame):
    runner.leave()
def parted(runner, number, frame):
    runner.leave()
signal.signal(signal.SIGUSR1, {handler})
signal.signal(signal.SIGTERM, {handler})
{end}
"""
SENT = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("handler", "end", "handled"),
    [
        ("runner.on_signal", SENT, "SIGTERM"),
        ("runner.on_any", SENT, "SIGTERM"),
        ("plain", SENT, "SIGTERM"),
        ("functools.partial(parted, runner)", SENT, "SIGTERM"),
        ("plain", "plain(None, None)", ""),
        ("plain", "runner.leave()", ""),
    ],
)
def test_an_exit_in_a_handler_of_a_signal_names_the_signal(
    tmp_path: Path, handler: str, end: str, handled: str
) -> None:
    rank = run(tmp_path, HANDLERS.format(handler=handler, end=end))

    assert rank.box is not None
    assert rank.box.exit_call == (str(tmp_path / "script.py"), 9, "leave", "0")
    assert (rank.code, rank.box.exit_signal) == (0, handled)


def test_a_fatal_signal_in_a_thread_names_the_threads_stack(tmp_path: Path) -> None:
    source = """
import ctypes, threading
def work():
    ctypes.string_at(0)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    rank = run(tmp_path, source)

    assert rank.code == -11
    assert "work" in [frame.function for frame in parse_fault(rank.fault).frames]


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ("sys.exit(3)", 3, "3"),
        ("sys.exit()", 0, "0"),
        ("sys.exit(0)", 0, "0"),
        ("sys.exit('no data')", 1, "no data"),
        ("exit(5)", 5, "5"),
        ("quit('no data')", 1, "no data"),
        ("os._exit(4)", 4, "4"),
        ("os._exit(0)", 0, "0"),
    ],
)
def test_who_called_exit_is_known(tmp_path: Path, end: str, code: int, text: str) -> None:
    rank = run(tmp_path, SCRIPT.format(end))

    assert rank.code == code
    assert rank.box is not None
    assert rank.box.exit_call == (str(tmp_path / "script.py"), 3, "end", text)
    assert rank.box.shut_down is not None
    assert rank.errors() == []


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("[]", "script.py: error: the following arguments are required: --lr"),
        ("['--lr', 'x']", "script.py: error: argument --lr: invalid float value: 'x'"),
        ("['--help']", ""),
    ],
)
def test_where_argparse_ends_a_program_its_own_line_and_what_was_said_are_known(
    tmp_path: Path, argument: str, said: str
) -> None:
    source = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args({argument})
"""
    rank = run(tmp_path, source)

    assert rank.box is not None
    code = "2" if said else "0"
    assert rank.box.exit_call == (str(tmp_path / "script.py"), 5, "<module>", code)
    assert rank.box.exit_said == said
    assert rank.errors() == []


@pytest.mark.parametrize("handles", [True, False])
def test_where_click_ends_a_program_the_same_is_known(tmp_path: Path, handles: bool) -> None:
    # The shape of click.core: up to 8.3 it leaves from its `except`, later behind it.
    package = tmp_path / "site-packages" / "click"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from click.core import main\n")
    (package / "exceptions.py").write_text(
        "class ClickException(Exception):\n"
        "    def format_message(self): return self.args[0]\n"
        "    def show(self): pass\n"
        "class UsageError(ClickException): pass\n"
        "class NoSuchOption(UsageError): pass\n"
    )
    leaves = "e.show(); sys.exit(2)" if handles else "report = e.show"
    (package / "core.py").write_text(
        "import sys\nfrom click.exceptions import ClickException, NoSuchOption\n"
        "def main():\n    try:\n        raise NoSuchOption('No such option: --lx')\n"
        f"    except ClickException as e:\n        {leaves}\n    sys.exit(2)\n"
    )
    rank = run(tmp_path, "import click\nclick.main()\n", pythonpath=str(package.parent))

    assert rank.box is not None
    assert rank.box.exit_call == (str(tmp_path / "script.py"), 2, "<module>", "2")
    assert rank.box.exit_said == "No such option: --lx"
    assert rank.errors() == []


def test_the_end_of_the_script_is_no_call_of_exit(tmp_path: Path) -> None:
    rank = run(tmp_path, "pass")

    assert rank.box is not None
    assert (rank.code, rank.box.exit_call) == (0, None)
    assert rank.box.shut_down is not None


def test_a_raised_system_exit_works_as_ever(tmp_path: Path) -> None:
    rank = run(tmp_path, "raise SystemExit(6)")

    assert (rank.code, rank.errors()) == (6, [])
    assert rank.box is not None
    assert (rank.box.exit_call, rank.box.program) == (None, str(tmp_path / "script.py"))


def test_exit_functions_keep_their_names_and_errors(tmp_path: Path) -> None:
    source = "import os, sys\nprint(sys.exit.__name__, os._exit.__name__)\nos._exit()"
    rank = run(tmp_path, source)

    assert (rank.code, rank.out) == (1, "exit _exit\n")
    assert rank.error["type"] == "TypeError"


AGENT = """
import os, subprocess, sys
env = dict(os.environ, SAFELAUNCH_AGENT=str(os.getpid()))
subprocess.Popen([sys.executable, *sys.argv[1:]], env=env, start_new_session=True, close_fds=False)
sys.stdin.read()
"""
RANK = "import os, signal, sys\nos.write(int(sys.argv[1]), b'ready')\nsignal.pause()"


def test_a_rank_dies_with_its_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RANK)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    agent = subprocess.Popen(
        [sys.executable, "-S", "-c", AGENT, str(script), str(writer)],
        env=rank_environment(tmp_path),
        stdin=subprocess.PIPE,
        close_fds=False,
    )
    os.close(writer)
    try:
        assert os.read(reader, 5) == b"ready"
        agent.kill()
        agent.wait()

        # The rank, and nobody else, still holds the pipe: its end is the rank's end.
        poll = select.poll()  # other tests in this process may have left more descriptors than select() knows
        poll.register(reader, select.POLLHUP)
        assert poll.poll(30_000)
        assert os.read(reader, 5) == b""
    finally:
        agent.kill()
        os.close(reader)


def test_a_python_below_a_shell_runs_and_claims_no_slot(tmp_path: Path) -> None:
    # `--no-python run.sh`: the shell is the rank, the Python below it must neither die nor claim the slot.
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} {script}; true"],
        env=rank_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert (tmp_path / "black_box").read_bytes().strip(b"\0") == b""


def test_a_rank_whose_agent_died_during_its_start_ends(tmp_path: Path) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()

    assert run(tmp_path, "print('ran')", session=True, SAFELAUNCH_AGENT=str(gone.pid)).code == -signal.SIGKILL


KEPT = """
import os, sys, types
from safelaunch.worker.kept_modules import Keeper

class Last:
    def __init__(self, name, write=os.write): self.name, self.write = name, write
    def __del__(self): self.write(1, self.name + b" ")

for name in ("kept", "other"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].last = Last(name.encode())
kept = {"kept": id(sys.modules["kept"])}
"""


@pytest.mark.parametrize(("end", "said"), [("", "other"), ("sys.__interactivehook__ = None", "kept other")])
def test_modules_that_are_kept_are_not_taken_apart(end: str, said: str) -> None:
    source = f"{KEPT}\nsys.__interactivehook__ = Keeper(kept)\ndel kept\n{end}"
    command = [sys.executable, "-c", source]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, sorted(ended.stdout.split()), ended.stderr) == (0, said.split(), "")

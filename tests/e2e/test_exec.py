"""`safelaunch exec`: ranks of every launcher are watched, and the command does not notice."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, TORCHRUN, Ended, environment, launch, newest_run

JOINS = FAULTS / "joins.py"
PYTHON = sys.executable


def run(tmp_path: Path, *words: object, options: tuple[str, ...] = (), **changes: str | None) -> Ended:
    return launch("exec", *options, "--", *words, cwd=tmp_path, **changes)


def shell(tmp_path: Path, script: str, *options: str) -> Ended:
    return run(tmp_path, "bash", "-c", script, options=options)


def by_hand(what: str, port: int) -> str:
    """A shell that starts two ranks, each with the variables of a rank, and fails with the first that fails."""
    ranks = f"for r in 0 1; do RANK=$r {PYTHON} {JOINS} environment {what} {port} & done; wait -n || code=$?; wait"
    return f"export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port}; {ranks}; exit ${{code:-0}}"


# ------------------------------------------------------------------------------------------------ as the command


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nosuch 2>/dev/null", 127)]
)
def test_the_exit_code_is_the_commands(tmp_path: Path, script: str, code: int) -> None:
    ended = shell(tmp_path, script)

    assert (ended.code, ended.err) == (code, "")
    assert ended.run_dir is None  # a command without ranks leaves nothing


@pytest.mark.parametrize(("mode", "code"), [(None, 127), (0o600, 126), (0o700, 0)])
def test_a_command_that_cannot_be_run_fails_as_in_a_shell(tmp_path: Path, mode: int | None, code: int) -> None:
    if mode is not None:
        (tmp_path / "command").write_text("exit 0\n")  # without a first line: the shell's
        (tmp_path / "command").chmod(mode)

    ended = run(tmp_path, "./command")

    assert ended.code == code
    assert ("command" in ended.err) == bool(code)


def test_streams_open_files_and_arguments_are_the_commands(tmp_path: Path) -> None:
    show = "read line; echo $line $1 $#; cat <&7; ls /proc/self/fd | tr '\\n' ' '"
    words = [*SAFELAUNCH, "exec", "--", "bash", "-c", show, "name", "a b", "--quiet"]
    (tmp_path / "seven").write_text("seventh\n")
    shown = []
    for command in (words, words[5:]):
        line = " ".join(f"'{word}'" if word != show else f'"{show}"'.replace("$", "\\$") for word in command)
        ended = subprocess.run(
            ["bash", "-c", f"{line} 7<seven"],
            cwd=tmp_path,
            env=environment(),
            input="in\n",
            capture_output=True,
            text=True,
        )
        shown.append((ended.stdout, ended.stderr, ended.returncode))

    assert shown[0] == shown[1]
    assert shown[0][0].startswith("in a b 2\nseventh\n")


def test_who_reads_the_command_sees_it_close_its_output(tmp_path: Path) -> None:
    command = [*SAFELAUNCH, "exec", "--", "bash", "-c", "echo said; exec >&-; read"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.read() == "said\n"  # while the command waits for a line
        assert process.poll() is None
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.wait(20) == 0


COUNTS = """
import signal, time
count = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda signum, _: count.append(signum))
print("ready", flush=True)
until = time.monotonic() + 20
while not count and time.monotonic() < until:
    time.sleep(0.02)
time.sleep(0.4)  # for a second one
print(*count)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_signal_comes_once_whoever_it_was_sent_to(tmp_path: Path, send: object, signum: int) -> None:
    command = [*SAFELAUNCH, "exec", "--", PYTHON, "-c", COUNTS]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        send(process.pid, signum)  # type: ignore[operator]
        assert process.stdout.read() == f"{int(signum)}\n"
        assert process.wait(20) == 0


def test_signals_that_were_ignored_are_ignored_below(tmp_path: Path) -> None:
    show = "grep -E 'SigIgn|SigBlk' /proc/self/status"
    script = f"trap '' HUP USR2; {show}; {PYTHON} -m safelaunch exec -- {show}"
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    lines = ended.stdout.splitlines()

    assert lines[:2] == lines[2:]


def test_a_sitecustomize_and_a_path_of_the_user_work(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = 'yes'\n")
    show = "import os, sys; print(os.environ['THEIRS'], sys.path[1:], [m for m in sys.modules if 'safelaunch' in m])"
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    bare = subprocess.run([PYTHON, "-c", show], env=environment(PYTHONPATH=path), capture_output=True, text=True)

    ended = run(tmp_path, PYTHON, "-c", show, PYTHONPATH=path)

    assert ended.out == bare.stdout


@pytest.mark.parametrize(
    ("flags", "said"), [(["-E"], "no Python below this command was armed"), ([], "no process has")]
)
def test_why_nothing_was_watched_is_told_on_request(tmp_path: Path, flags: list[str], said: str) -> None:
    assert run(tmp_path, PYTHON, *flags, "-c", "pass").err == ""
    assert said in run(tmp_path, PYTHON, *flags, "-c", "pass", options=("-v",)).err


def test_where_it_cannot_watch_the_command_runs_all_the_same(tmp_path: Path) -> None:
    script = (
        "from safelaunch import injection\ninjection.can_be_named = lambda: False\n"
        "from safelaunch.cli.main import main\nraise SystemExit(main(['exec', '--', 'sh', '-c', 'echo ran; exit 3']))"
    )
    ended = subprocess.run([PYTHON, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (3, "ran\n")
    assert len(ended.stderr.splitlines()) == 1
    assert "not watched" in ended.stderr


# ------------------------------------------------------------------------------------------------ ranks that fail


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_a_rank_whose_number_is_an_argument_is_named(tmp_path: Path, free_port: int, start: str) -> None:
    ended = run(tmp_path, PYTHON, JOINS, start, "raise", free_port)

    assert ended.code == 1
    assert ended.verdict["culprit_ranks"] == [1]
    assert ended.verdict["summary"] == "rank 1 raised ValueError: boom at rank 1"
    assert any(line.startswith("error[SL401]: rank 1 raised ValueError") for line in ended.ours())
    assert ended.read("result.json")["exit_code"] == 1


@pytest.mark.slow
def test_ranks_of_torchrun_are_seen_through_it(tmp_path: Path, free_port: int) -> None:
    command = (*TORCHRUN, "--nproc-per-node", "2", "--master-port", free_port, JOINS, "environment", "kill", "0")
    ended = run(tmp_path, *command)

    assert (ended.code, ended.verdict["culprit_ranks"], ended.verdict["code"]) == (1, [1], "SL403")


@pytest.mark.slow
def test_a_rank_that_fails_before_its_group_is_named(tmp_path: Path, free_port: int) -> None:
    script = by_hand("early", free_port).replace("wait -n || code=$?; wait", "wait -n; kill %1; exit 5")
    ended = shell(tmp_path, script)

    assert ended.code == 5
    assert (ended.verdict["culprit_ranks"], "ImportError" in ended.verdict["summary"]) == ([1], True)


@pytest.mark.slow
def test_two_trainings_of_one_script_are_two_jobs_and_say_nothing(tmp_path: Path, free_port: int) -> None:
    one = f"({by_hand('none', free_port)})"
    ended = shell(tmp_path, f"{one} && {one}")

    assert (ended.code, ended.err) == (0, "")
    result = ended.read("result.json")
    assert [len(job["workers"]) for job in result["attempts"]] == [2, 2]
    assert result["verdicts"] == []
    assert not list(ended.run_dir.glob("incident-*"))  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_verdict_is_of_the_job_that_failed(tmp_path: Path, free_port: int) -> None:
    ended = shell(tmp_path, f"({by_hand('none', free_port)}) && ({by_hand('raise', free_port)})")

    assert ended.code == 1
    assert ended.verdict["summary"] == "rank 1 raised ValueError: boom at rank 1"
    assert f"of the job of 2 ranks at port {free_port}:" in ended.err


# ------------------------------------------------------------------------------------------------ hangs


@pytest.mark.slow
def test_a_hang_is_told_and_ends_the_command_where_that_is_asked_for(tmp_path: Path, free_port: int) -> None:
    ended = run(tmp_path, PYTHON, JOINS, "spawn", "hang", free_port, options=("--hang-abort-after", "9"))

    assert ended.code == 124
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL301", [1])
    assert ended.verdict["location"]["function"] == "misbehave"
    left = subprocess.run(["pgrep", "-f", f"joins.py spawn hang {free_port}"], capture_output=True, text=True)
    assert left.stdout == ""


@pytest.mark.slow
def test_a_hang_that_ends_by_itself_is_told_so(tmp_path: Path, free_port: int) -> None:
    ended = run(tmp_path, PYTHON, JOINS, "spawn", "late", free_port)

    assert ended.code == 0
    assert "rank 1 sleeps in wait_for" in ended.err
    assert "progress returned" in ended.err
    assert [verdict["kind"] for verdict in ended.read("result.json")["verdicts"]] == ["slow"]


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_looked_for_beside_the_others(tmp_path: Path, free_port: int) -> None:
    ended = run(tmp_path, PYTHON, JOINS, "spawn", "absent", free_port, options=("--hang-abort-after", "9"))

    assert (ended.code, ended.verdict["culprit_ranks"]) == (124, [1])
    assert any("started beside the others and has not joined" in line for line in ended.verdict["because"])
    assert ended.verdict["summary"].startswith("rank 1 sleeps in program (joins.py:")


@pytest.mark.slow
def test_of_a_rank_that_is_not_here_it_says_so(tmp_path: Path, free_port: int) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    command = (PYTHON, JOINS, "environment", "none", free_port)
    ended = run(tmp_path, *command, options=("--hang-abort-after", "20"), **alone)

    assert (ended.code, ended.verdict["culprit_ranks"]) == (124, [])
    assert "rank 1 has not joined on this node" in ended.verdict["summary"]


@pytest.mark.slow
def test_a_second_group_of_the_same_processes_is_another_job(tmp_path: Path, free_port: int) -> None:
    ended = run(tmp_path, PYTHON, JOINS, "spawn", "again", free_port, options=("--hang-abort-after", "9"))

    assert (ended.code, ended.verdict["code"], ended.verdict["culprit_ranks"]) == (124, "SL301", [1])
    assert ended.verdict["seq"] == 3
    assert len(ended.read("result.json")["jobs"]) == 2


# ------------------------------------------------------------------------------------------------ others


@pytest.mark.slow
def test_a_launch_of_ours_below_it_takes_over(tmp_path: Path) -> None:
    ended = run(tmp_path, *SAFELAUNCH, "--nproc-per-node", "2", JOINS, "environment", "raise", "0")

    assert ended.code == 1
    assert len([line for line in ended.err.splitlines() if line.startswith("error[")]) == 1
    assert len(list((tmp_path / "safelaunch_runs").iterdir())) == 1


@pytest.mark.slow
def test_what_outlives_the_command_is_left_alone(tmp_path: Path, free_port: int) -> None:
    daemon = f"nohup setsid {PYTHON} {JOINS} spawn outlives {free_port} >out 2>&1 </dev/null"
    script = f"{daemon} & while ! ls run/*/run.json; do sleep 0.2; done >/dev/null 2>&1"
    ended = run(tmp_path, "bash", "-c", script, options=("--run-dir", "run"))

    assert (ended.code, ended.err) == (0, "")
    (tmp_path / "go").touch()
    until = time.monotonic() + 60
    while (tmp_path / "out").read_text() != "done\n" and time.monotonic() < until:
        time.sleep(0.1)
    assert (tmp_path / "out").read_text() == "done\n"  # and no word of ours


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_ranks_that_join_are_watched_by_one_process_that_ends_with_them(
    tmp_path: Path, free_port: int, when: str
) -> None:
    command = [PYTHON, str(JOINS), "spawn", f"join-{when}-raise", str(free_port)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stderr.count("error[SL401]: rank 1 raised ValueError") == 1  # its end closes the pipe
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert json.loads((run_dir / "incident-0" / "verdict.json").read_text())["culprit_ranks"] == [1]
    assert len(list((tmp_path / "safelaunch_runs").iterdir())) == 1


@pytest.mark.parametrize("name", ["mine", f"safelaunch-join-{os.getuid()}-mine"])
def test_no_folder_of_the_user_is_emptied_for_those_that_join(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / name / "model.pt").write_text("weeks of work")
    (tmp_path / name / "lock").touch()
    with open(tmp_path / "another", "w") as lock:
        ended = subprocess.run(
            [*SAFELAUNCH, "exec", "--watch", str(tmp_path / name), "--lock", str(lock.fileno())],
            env=environment(),
            capture_output=True,
            text=True,
            pass_fds=(lock.fileno(),),
        )

    assert (ended.returncode, sorted(file.name for file in (tmp_path / name).iterdir())) == (2, ["lock", "model.pt"])
    assert "no rank has made this folder" in ended.stderr


# ------------------------------------------------------------------------------------------------ on a terminal


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, cwd: Path) -> None:
        self.said = ""
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(PS1="$ ", TERM="dumb"))

    def type(self, text: str, *, until: str) -> str:
        """Type something, and wait for an answer; returns what was said since."""
        os.write(self._descriptor, text.encode())
        before = len(self.said)
        while until not in self.said[before:]:
            self.said += os.read(self._descriptor, 4096).decode()
        return self.said[before:]

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._descriptor)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shell = Terminal(tmp_path)
    yield shell
    shell.close()


EXEC = " ".join([*SAFELAUNCH, "exec", "--"])


# The shell shows the command before it puts it in the foreground: a Ctrl-C in between is lost, without us as well.
SAYS_THAT_IT_GOES_ON = (
    "import signal, time; signal.signal(signal.SIGCONT, lambda *_: print('goes' + ' on', flush=True)); "
    "print('re' + 'ady', flush=True); time.sleep(60)"
)


def test_a_terminal_stops_continues_and_interrupts_it(terminal: Terminal) -> None:
    terminal.type(f'{EXEC} {PYTHON} -c "{SAYS_THAT_IT_GOES_ON}"\n', until="ready")
    assert "Stopped" in terminal.type("\x1a", until="Stopped")
    terminal.type("fg\n", until="goes on")
    terminal.type("\x03", until="KeyboardInterrupt")

    assert "code=130" in terminal.type("echo co''de=$?\n", until="code=1")


def test_a_command_that_a_terminal_does_not_stop_goes_on(terminal: Terminal) -> None:
    terminal.type(f"{EXEC} sh -c 'trap \"\" TSTP; echo re''ady; read line; echo so''on'\n", until="ready")

    assert "Stopped" not in terminal.type("\x1a\n", until="soon")


def test_the_terminal_is_the_commands(terminal: Terminal) -> None:
    show = "import os; print(os.isatty(0), os.isatty(1), os.tcgetpgrp(0) == os.getpgrp(), 'en' + 'd')"

    assert "True True True end" in terminal.type(f'{EXEC} {PYTHON} -c "{show}"\n', until="end")


@pytest.mark.slow
def test_who_has_had_enough_of_a_hang_is_told_of_it_at_the_end(tmp_path: Path, free_port: int) -> None:
    command = [*SAFELAUNCH, "exec", "--", PYTHON, str(JOINS), "spawn", "hang", str(free_port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert any("watching on" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.stderr.read()

    assert process.returncode == 130
    assert "error[SL301]: rank 1 sleeps in misbehave" in said
    assert "progress returned" not in said

"""Signals end a run promptly, and nothing of it stays: no worker, no loader child, no grandchild."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import FAULTS, REPOSITORY, SAFELAUNCH, environment, newest_run, start, survivors, wait_for_lines

FAMILY = FAULTS / "family.py"


def running_family(folder: Path, *words: str, shutdown_timeout: int = 2) -> subprocess.Popen[str]:
    """Two ranks with loader workers and a grandchild in its own session, in the middle of their training."""
    process = start("--nproc-per-node", 2, "--shutdown-timeout", shutdown_timeout, FAMILY, *words, cwd=folder)
    wait_for_lines(process, "ready", 2)
    return process


def nothing_is_left(folder: Path) -> bool:
    run_dir = newest_run(folder)
    assert run_dir is not None
    return survivors(run_dir, within_s=5) == []


@pytest.mark.parametrize("words", [(), ("ignore",), ("stop",), ("ignore", "stop")], ids="-".join)
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=str)
def test_a_signal_ends_everything(words: tuple[str, ...], signum: int, code: int, tmp_path: Path) -> None:
    process = running_family(tmp_path, *words)

    process.send_signal(signum)

    assert process.wait(30) == code
    assert nothing_is_left(tmp_path)


def test_a_second_interrupt_ends_everything_at_once(tmp_path: Path) -> None:
    process = running_family(tmp_path, "ignore", shutdown_timeout=600)

    process.send_signal(signal.SIGINT)
    wait_until_said(process, "passed on to 2 ranks")
    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130  # far less than the shutdown timeout
    assert nothing_is_left(tmp_path)


def wait_for_file(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def wait_until_said(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it never said: {text}")


def test_the_scheduler_may_repeat_sigterm(tmp_path: Path) -> None:
    process = start("--nproc-per-node", 1, "--shutdown-timeout", 60, FAULTS / "farewell.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 1)

    process.send_signal(signal.SIGTERM)
    wait_for_lines(process, "saving", 1)
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 143
    assert (tmp_path / "saved").exists()


SLOW_TO_TELL = """
import json, os, time
dumps, begun = json.dumps, []
def late(document, **options):
    text = dumps(document, **options)
    if text.startswith('{"event": "worker"'):
        while not os.path.exists("may_tell"):
            time.sleep(0.01)
    if '"torchelastic.worker.status.START"' in text:
        begun.append(text)
        if len(begun) == 2:  # the last word of the agent before a rank ends
            open("told", "w").close()
    return text
json.dumps = late
"""


def test_a_signal_before_the_agent_has_told_of_a_rank_gives_it_its_time_too(tmp_path: Path) -> None:
    (tmp_path / "slow_to_tell.py").write_text(SLOW_TO_TELL)
    (tmp_path / "own.toml").write_text('[launch]\npreload = ["slow_to_tell"]\n')
    options = ("--warm-start", "--profile", "./own.toml", "--shutdown-timeout", 60)
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    process = start("--nproc-per-node", 2, *options, FAULTS / "farewell.py", cwd=tmp_path, PYTHONPATH=path)
    wait_for_lines(process, "ready", 1)

    process.send_signal(signal.SIGTERM)
    wait_until_said(process, "SIGTERM: ")
    (tmp_path / "may_tell").touch()

    assert process.wait(30) == 143
    assert (tmp_path / "saved").exists()
    assert nothing_is_left(tmp_path)


SIGNALS_FIRST = """
import os, selectors, time
class Selector(selectors.DefaultSelector):
    def select(self, timeout=None):
        while os.path.exists("hold"):
            open("held", "w").close()
            time.sleep(0.01)
        found = super().select(min(0.05, timeout or 0.05))
        return sorted(found, key=lambda each: each[0].data.__name__ != "_on_signals")
selectors.DefaultSelector = Selector
from safelaunch.__main__ import main
main()
"""
SAVES_AND_STAYS = """
import os, signal, time
def save(signum, frame):
    signal.signal(signum, signal.SIG_DFL)
    time.sleep(1)
    open("saved", "w").close()
signal.signal(signal.SIGTERM, save)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.1)
"""


def test_a_signal_that_comes_with_the_word_of_a_rank_is_passed_on_once(tmp_path: Path) -> None:
    for name, text in {"first": SIGNALS_FIRST, "slow_to_tell": SLOW_TO_TELL, "train": SAVES_AND_STAYS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "own.toml").write_text('[launch]\npreload = ["slow_to_tell"]\n')
    options = ("--warm-start", "--profile", "./own.toml", "--shutdown-timeout", "5", "--nproc-per-node", "2")
    process = subprocess.Popen(
        [sys.executable, "first.py", *options, "train.py"],
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(REPOSITORY)])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_lines(process, "ready", 1)
    (tmp_path / "hold").touch()
    wait_for_file(tmp_path / "held")
    (tmp_path / "may_tell").touch()
    wait_for_file(tmp_path / "told")
    process.send_signal(signal.SIGTERM)
    (tmp_path / "hold").unlink()

    assert process.wait(30) == 143
    assert (tmp_path / "saved").exists()
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("words", [(), ("ignore",), ("stop",)], ids="-".join)
def test_death_of_the_supervisor_ends_everything(words: tuple[str, ...], tmp_path: Path) -> None:
    process = running_family(tmp_path, *words)

    process.kill()
    process.wait()

    assert nothing_is_left(tmp_path)


def test_scratch_files_are_gone_after_a_killed_supervisor(tmp_path: Path) -> None:
    process = running_family(tmp_path)
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    scratch = Path(json.loads((run_dir / "run.json").read_text())["plan"]["scratch_dir"])
    assert scratch.exists()

    process.kill()
    process.wait()

    assert nothing_is_left(tmp_path)
    deadline = time.monotonic() + 10
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not scratch.exists()


def test_death_of_the_agent_is_an_infrastructure_error(tmp_path: Path) -> None:
    process = running_family(tmp_path)

    os.kill(agent_of(process.pid), signal.SIGKILL)

    _, err = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "error[SL601]: the agent was killed by SIGKILL" in err
    assert nothing_is_left(tmp_path)


def test_an_agent_that_is_blocked_is_not_waited_for(tmp_path: Path) -> None:
    process = running_family(tmp_path)
    os.kill(agent_of(process.pid), signal.SIGSTOP)

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 143
    assert nothing_is_left(tmp_path)


def test_a_killed_guard_is_replaced(tmp_path: Path) -> None:
    process = running_family(tmp_path)
    first = guard_of(process.pid)
    os.kill(first, signal.SIGKILL)
    while guard_of(process.pid) in (first, None):
        time.sleep(0.01)

    process.kill()
    process.wait()

    assert nothing_is_left(tmp_path)


def children(pid: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(name))
    return found


def is_agent(pid: int) -> bool:
    return "safelaunch.agent" in command_line(pid)


def is_fork_server(pid: int) -> bool:
    return "fork server" in command_line(pid) or bool(children(pid))  # it sets its title when Python has started


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def agent_of(supervisor: int) -> int:
    return next(pid for pid in children(supervisor) if is_agent(pid))


def fork_server_of(supervisor: int) -> int | None:
    return next((pid for pid in children(supervisor) if not is_agent(pid) and is_fork_server(pid)), None)


def guard_of(supervisor: int) -> int | None:
    return next((p for p in children(supervisor) if not is_agent(p) and not is_fork_server(p)), None)


def test_usr_signals_reach_only_ranks_that_catch_them(tmp_path: Path) -> None:
    process = start("--nproc-per-node", 2, FAULTS / "catcher.py", cwd=tmp_path)
    wait_for_lines(process, "ready", 2)

    process.send_signal(signal.SIGUSR1)
    assert wait_for_lines(process, "caught", 1) == ["caught SIGUSR1 on rank 0"]
    process.send_signal(signal.SIGUSR2)
    assert wait_for_lines(process, "caught", 1) == ["caught SIGUSR2 on rank 0"]
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 143


def test_a_usr_signal_that_is_listed_ends_the_run_as_under_torchrun(tmp_path: Path) -> None:
    process = start(
        "--signals-to-handle", "SIGTERM,SIGINT,SIGUSR1", "--nproc-per-node", 1, FAULTS / "farewell.py", cwd=tmp_path
    )
    wait_for_lines(process, "ready", 1)

    process.send_signal(signal.SIGUSR1)

    assert process.wait(30) == 128 + signal.SIGUSR1


def test_nohup_is_respected(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", *SAFELAUNCH, str(FAULTS / "farewell.py")],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_for_lines(process, "ready", 1)

    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 143


def test_a_signal_before_the_workers_start_ends_the_run(tmp_path: Path) -> None:
    # A rendezvous for a node that never comes: torchrun ignores Ctrl-C here.
    process = start(
        *("--preflight", "off", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
        FAULTS / "hello.py",
        cwd=tmp_path,
    )
    while not list(tmp_path.glob("safelaunch_runs/*/*/agent.jsonl")):
        time.sleep(0.02)
    journal = next(tmp_path.glob("safelaunch_runs/*/*/agent.jsonl"))
    while '"config"' not in journal.read_text():
        time.sleep(0.02)

    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130


@pytest.mark.skipif(os.geteuid() != 0, reason="a new pid namespace needs root")
def test_as_pid_1_of_a_container_signals_work_and_zombies_are_reaped(tmp_path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", *SAFELAUNCH, "--nproc-per-node", "1", "--shutdown-timeout"]
    process = subprocess.Popen(
        [*command, "2", str(FAULTS / "orphans.py")],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_for_lines(process, "zombies", 1) == ["zombies 0"]
    inside = children(process.pid)[0]

    os.kill(inside, signal.SIGTERM)

    assert process.wait(30) == 143

"""Streams and signals that whoever starts a launcher has closed, blocked or ignored: the ranks get what they would get
under torchrun, and nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, SAFELAUNCH, environment, newest_run

SCRIPT = FAULTS / "streams.py"
CLOSED = ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
WAYS = {"warm": ("--warm-start",), "cold": ("--no-warm-start", "--preflight", "off")}


def run(command: list[str], closed: tuple[int, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with these of its standard streams closed."""
    shell = ["sh", "-c", 'exec "$0" "$@" ' + " ".join(f"{descriptor}>&-" for descriptor in closed)]
    with open(folder / "in", "w+") as stdin, open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        code = subprocess.run(
            [*shell, *command],
            cwd=folder,
            env=environment(),
            stdin=stdin,
            stdout=out,
            stderr=err,
            timeout=60,
            check=False,
        ).returncode
    return subprocess.CompletedProcess(command, code, (folder / "out").read_text(), (folder / "err").read_text())


def seen(folder: Path, rank: object) -> Any:
    return json.loads((folder / f"seen-{rank}.json").read_text())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("closed", CLOSED, ids=lambda closed: "".join(map(str, closed)) or "none")
def test_a_rank_sees_the_streams_that_the_launcher_got(closed: tuple[int, ...], way: str, tmp_path: Path) -> None:
    run([sys.executable, str(SCRIPT)], closed, tmp_path)

    ended = run([*SAFELAUNCH, *WAYS[way], "--nproc-per-node", "2", str(SCRIPT)], closed, tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert seen(tmp_path, 0) == seen(tmp_path, 1) == seen(tmp_path, "none")
    assert sorted(ended.stdout.splitlines()) == ([] if 1 in closed else ["out of 0", "out of 1"])
    said = [line for line in ended.stderr.splitlines() if line.startswith("err")]
    assert sorted(said) == ([] if 2 in closed else ["err of 0", "err of 1"])


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_is_redirected_is_there_though_the_launcher_has_none(way: str, tmp_path: Path) -> None:
    options = [*WAYS[way], "--nproc-per-node", "2", "--redirects", "1"]

    ended = run([*SAFELAUNCH, *options, str(SCRIPT)], (0, 1, 2), tmp_path)

    assert ended.returncode == 0
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert (run_dir / "attempt_0/rank_001/stdout.log").read_text() == "out of 1\n"
    assert [seen(tmp_path, 1)[f"sys.{name}"] for name in ("stdin", "stdout", "stderr")] == [False, True, False]


def test_a_failure_leaves_its_verdict_where_nobody_can_be_told(tmp_path: Path) -> None:
    ended = run([*SAFELAUNCH, "--nproc-per-node", "2", str(SCRIPT), "fail"], (0, 1, 2), tmp_path)

    assert ended.returncode == 1
    run_dir = newest_run(tmp_path)
    assert run_dir is not None
    assert json.loads((run_dir / "incident-0/verdict.json").read_text())["culprit_ranks"] == [1]


TELLS_OF_SIGCHLD = """
import json, os, signal, sys
blocked = signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, [])
os.write(1, (json.dumps([blocked, signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN]) + "\\n").encode())
sys.exit(7 if os.environ["RANK"] == "1" and "fail" in sys.argv else 0)
"""
STARTS_WITHOUT_SIGCHLD = {
    "blocked": "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])",
    "ignored": "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("words", [(), ("fail",)], ids="-".join)
@pytest.mark.parametrize("how", STARTS_WITHOUT_SIGCHLD)
def test_sigchld_may_be_blocked_or_ignored(how: str, words: tuple[str, ...], way: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TELLS_OF_SIGCHLD)
    starter = f"{STARTS_WITHOUT_SIGCHLD[how]}; os.execv(sys.executable, sys.argv[1:])"
    command = [*SAFELAUNCH, *WAYS[way], "--nproc-per-node", "2", "train.py", *words]

    ended = subprocess.run(
        [sys.executable, "-c", starter, *command],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == (1 if words else 0), ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [[how == "blocked", how == "ignored"]] * 2


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_of_the_script_that_the_launcher_was_started_to_ignore_is_ignored_in_the_ranks(
    way: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import signal\nprint(signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN)\n")
    ignore = "import os, signal, sys; signal.signal(signal.SIGUSR1, signal.SIG_IGN)"
    starter = f"{ignore}; os.execv(sys.executable, sys.argv[1:])"

    ended = subprocess.run(
        [sys.executable, "-c", starter, *SAFELAUNCH, *WAYS[way], "train.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr

"""Every command of README, as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY, environment

pytestmark = pytest.mark.slow

COMMANDS = [
    shlex.join(words)
    for block in re.findall(r"^```sh\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if (words := shlex.split(line, comments=True))
]
SCRIPTS = ("sh scripts/demo", "sh scripts/test")
INSTALL = "pip install ."  # test_install.py has it, in all its forms
TRAIN = """\
import argparse, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
dist.init_process_group("gloo")
dist.all_reduce(torch.tensor(parser.parse_args().lr))
print("trained")
dist.destroy_process_group()
"""


def executable(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which `scripts/setup` has been before, with this Python in the place of its own."""
    for name in ("scripts", "examples"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    executable(tmp_path / ".venv" / "bin" / "safelaunch", f'exec {shlex.quote(sys.executable)} -m safelaunch "$@"')
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{folder / '.venv' / 'bin'}:{environment()['PATH']}"
    home = str(folder / "home")
    return subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=100, check=False,
        env=environment(PATH=path, SAFELAUNCH_HISTORY=None, XDG_STATE_HOME=home, XDG_CACHE_HOME=home),
    )  # fmt: skip


def test_the_first_command_shows_a_verdict(checkout: Path) -> None:
    ended = run(SCRIPTS[0], checkout)
    assert ended.returncode == 0, ended.stderr
    assert "error[SL401]: rank 2 raised ValueError: shard 17 is truncated" in ended.stderr
    assert "(exit code 1)" in ended.stdout


def test_the_second_command_runs_linters_and_tests(checkout: Path) -> None:
    for tool in ("ruff", "mypy", "python"):
        executable(checkout / ".venv" / "bin" / tool, f'echo {tool} "$@"')
    ended = run(SCRIPTS[1], checkout)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["ruff", "ruff", "mypy", "python", "python"]
    assert "sh scripts/test" in (REPOSITORY / ".ci" / "run").read_text()


def test_the_other_commands_do_what_stands_behind_them(checkout: Path) -> None:
    (checkout / "train.py").write_text(TRAIN)
    assert COMMANDS[:2] == list(SCRIPTS)
    assert INSTALL in COMMANDS
    shown = {}
    for command in COMMANDS[2:]:
        if command != INSTALL:
            assert command.startswith("safelaunch "), command
            ended = run(command, checkout)
            assert ended.returncode == 0, f"{command}:\n{ended.stdout}{ended.stderr}"
            shown[command.split()[1]] = ended.stdout + ended.stderr
    assert shown["--nproc-per-node"].count("trained") == 2
    assert "checks passed" in shown["check"]
    assert "train.py" in shown["runs"]
    assert "SL307 (loader-stuck)" in shown["explain"]

"""What ranks leave behind when they end: what becomes of it, and that no zombie is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, environment, launch
from test_signals import nothing_is_left, wait_for_file


def test_children_that_a_successful_rank_leaves_may_finish(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 1, "--shutdown-timeout", 60, FAULTS / "uploader.py", cwd=tmp_path)

    assert ended.code == 0
    assert (tmp_path / "uploaded").exists()


@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
def test_what_a_successful_rank_has_detached_lives_on_and_is_named(way: str, tmp_path: Path) -> None:
    options = ("--nproc-per-node", 2, "--shutdown-timeout", 600)  # which nobody is to wait for
    ended = launch(way, *options, FAULTS / "detaches.py", cwd=tmp_path)

    pid = ended.out.split()[1]
    assert ended.code == 0
    assert f"safelaunch: leaving alone what the ranks have detached: {pid} (sh -c while" in ended.err
    assert Path("/proc", pid).exists()

    again = launch("--preflight", "full", FAULTS / "hello.py", cwd=tmp_path)
    assert "SL110" not in again.err  # it was left on purpose
    (tmp_path / "enough").touch()
    wait_for_file(tmp_path / "uploaded")


@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
def test_what_a_failed_rank_has_detached_is_ended_and_named(way: str, tmp_path: Path) -> None:
    ended = launch(way, FAULTS / "detaches.py", "fail", "forever", cwd=tmp_path)

    pid = ended.out.split()[1]
    assert ended.code == 1
    assert f"safelaunch: ending what the ranks have detached: {pid} (sleep 600)" in ended.err
    assert nothing_is_left(tmp_path)


WITHOUT_REAPING = """
import os, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
texts = [open(f"/proc/{name}/stat").read() for name in os.listdir("/proc") if name.isdigit()]
print("code", code, "zombies", sum(text.rpartition(")")[2].split()[0] == "Z" for text in texts))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a new pid namespace needs root")
@pytest.mark.parametrize("way", ["--warm-start", "--no-warm-start"])
@pytest.mark.parametrize(
    ("words", "code"), [(("hello.py",), 0), (("victim.py", "exit", "1"), 1)], ids=["well", "badly"]
)
def test_nobody_is_left_as_a_zombie_where_pid_1_does_not_reap(
    words: tuple[str, ...], code: int, way: str, tmp_path: Path
) -> None:
    (tmp_path / "init.py").write_text(WITHOUT_REAPING)
    script, *arguments = words
    ended = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "init.py"]
        + [*SAFELAUNCH, way, "--nproc-per-node", "2", str(FAULTS / script), *arguments],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert ended.stdout.splitlines()[-1] == f"code {code} zombies 0"

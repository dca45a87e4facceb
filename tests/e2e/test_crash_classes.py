"""Ranks that run out of something: the right rank, the code, and what was short. All on CPU, with gloo."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import FAULTS, SAFELAUNCH, Ended, environment, launch, newest_run

EXHAUSTED = FAULTS / "exhausted.py"
LONG = pytest.mark.long


def exhausted(
    kind: str, who: object, cwd: Path, *argument: object, ranks: int = 3, options: tuple[object, ...] = ()
) -> Ended:
    return launch("--preflight", "off", "--nproc-per-node", ranks, *options, EXHAUSTED, kind, who, *argument, cwd=cwd)


def within(mounts: str, kind: str, who: object, cwd: Path, *argument: object) -> Ended:
    """The same in a mount namespace with small file systems of its own."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root")
    run = [*SAFELAUNCH, "--preflight", "off", "--nproc-per-node", 2, str(EXHAUSTED), kind, who, *argument]
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], capture_output=True, check=False).returncode:
        pytest.skip("no file systems can be mounted here")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", *map(str, run)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr, newest_run(cwd))


@pytest.mark.parametrize("what", ["tensors", pytest.param("bytes", marks=LONG)])
def test_a_limit_of_memory(what: str, tmp_path: Path) -> None:
    ended = exhausted("little_memory", 1, tmp_path, what)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL404", [1]), ended.err
    assert "(ulimit -v)" in ended.verdict["summary"]


def test_a_limit_of_the_size_of_files(tmp_path: Path) -> None:
    ended = exhausted("small_files", 1, tmp_path, tmp_path)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL423", [1]), ended.err
    assert "1 MiB each (ulimit -f)" in ended.verdict["summary"]


@pytest.mark.parametrize(
    ("kind", "who", "code", "culprits", "said"),
    [
        ("open_files", "1", "SL422", [1], "a process may have"),
        pytest.param("gpu_full", "1", "SL420", [1], "4 processes hold memory of its GPU", marks=LONG),
        pytest.param("gpu_full", "all", "SL420", [], "every rank ran out of GPU memory", marks=LONG),
        pytest.param("gpu_kernel", "2", "SL427", [2], "illegal memory access", marks=LONG),
        pytest.param("nccl_one_of_many", "1", "SL426", [1], "NCCL says: Call to ibv_reg_mr failed", marks=LONG),
        pytest.param("two_classes", "0", "SL420", [0], "ran out of GPU memory", marks=LONG),
        ("worker_killed", "1", "SL429", [1], "ended by SIGKILL"),
        pytest.param("worker_aborts", "1", "SL429", [1], "ended by SIGABRT", marks=LONG),
        pytest.param("worker_raises", "1", "SL401", [1], "raised ValueError", marks=LONG),
    ],
)
def test_the_rank_and_what_it_lacked(
    kind: str, who: str, code: str, culprits: list[int], said: str, tmp_path: Path
) -> None:
    ended = exhausted(kind, who, tmp_path, tmp_path)

    assert ended.code == 1
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == (code, culprits), ended.err
    assert said in ended.err
    assert not set(ended.verdict["secondary"]) & set(culprits)
    assert len(ended.ours()) <= 25
    if kind in ("worker_aborts", "worker_raises"):
        assert ended.verdict["location"]["function"] in ("__getitem__", "broken")


def test_who_holds_the_port(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        ended = exhausted("listen", 1, tmp_path, holder.getsockname()[1], ranks=2)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL424", [1]), ended.err
    assert f"pid {os.getpid()} holds it" in ended.verdict["summary"]


@pytest.mark.parametrize("kind", ["save", pytest.param("plain_write", marks=LONG)])
def test_the_disk_that_was_full(kind: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    ended = within(f"mount -t tmpfs -o size=2m none {tmp_path}/disk", kind, 1, tmp_path, tmp_path / "disk")

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL423", [1]), ended.err
    assert f"{tmp_path}/disk/model." in ended.verdict["summary"]


@pytest.mark.parametrize("kind", [pytest.param("shm", marks=LONG), "shared_tensor"])
def test_shared_memory_that_was_full(kind: str, tmp_path: Path) -> None:
    ended = within("mount -t tmpfs -o size=8m none /dev/shm", kind, 1, tmp_path)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL421", [1]), ended.err
    assert "8 MiB" in " ".join(ended.verdict["because"])


OWN = """
[[signature]]
name = "magnet"
pattern = "quench of magnet (?P<number>\\\\d+)"
role = "cause"
code = "SL603"
means = "the beam was dumped"
remedy = "call the control room"
"""


def test_a_profile_brings_its_own_messages(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    profile = tmp_path / "lab.toml"
    profile.write_text('[diagnosis]\nsignatures = ["own.toml", "broken.toml"]\n')
    (tmp_path / "broken.toml").write_text("[[signature]]\nname = 1\n")
    ended = exhausted("own_message", 1, tmp_path, ranks=2, options=("--profile", profile))

    assert "warning[SL290]" in ended.err  # ... and the launch goes on
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL603", [1]), ended.err
    assert "the beam was dumped" in ended.verdict["summary"]
    assert ended.verdict["exit_code"] == 75

    (tmp_path / "broken.toml").write_text(OWN)
    done = subprocess.run(
        [sys.executable, "-m", "safelaunch", "diagnose", "--profile", str(profile), str(ended.run_dir)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "error[SL603]: rank 1 failed: the beam was dumped" in done.stdout

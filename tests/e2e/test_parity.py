"""A script cannot tell safelaunch from torchrun."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, SAFELAUNCH, TORCHRUN, environment, launch

WITNESS = FAULTS / "witness.py"


def seen_by_ranks(
    launcher: tuple[str, ...], folder: Path, *arguments: object, stdin: str = "hello\n", **changes: str | None
) -> list[Any]:
    """What each rank saw, by rank."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    process = subprocess.run(
        [*launcher, *map(str, arguments)],
        cwd=folder,
        env=environment(WITNESS_OUT=str(out), **changes),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]


WAYS = {
    "script": ("--nproc-per-node", 2, WITNESS, "--its-own", "x"),
    "relative script": ("--nproc-per-node=2", os.path.relpath(WITNESS, "/"), "a"),
    "module": ("--nproc_per_node", 2, "-m", "witness", "a", "--b"),
    "no-python": ("--nproc-per-node", 1, "--no-python", "python3", "-u", WITNESS, "a"),
    "virtual local rank": ("--nproc-per-node", 2, "--virtual-local-rank", WITNESS),
    "static rendezvous": ("--nproc-per-node", 1, "--nnodes", 1, "--master-port", "{port}", WITNESS),
}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_see_what_they_see_under_torchrun(way: str, tmp_path: Path, free_port: int) -> None:
    arguments = [str(word).format(port=free_port) for word in WAYS[way]]
    changes = {}
    if way == "relative script":
        (tmp_path / arguments[1]).parent.mkdir(parents=True)
        (tmp_path / arguments[1]).write_text(WITNESS.read_text())
    if way == "module":
        (tmp_path / "witness.py").write_text(WITNESS.read_text())

    theirs = seen_by_ranks(TORCHRUN, tmp_path, *arguments, **changes)
    ours = seen_by_ranks(SAFELAUNCH, tmp_path, *arguments, **changes)

    assert ours == theirs


def test_run_path_runs_the_script_as_main(tmp_path: Path) -> None:
    # torchrun closes stdin here and takes sys.path[0] from its own start; the rest is the same.
    theirs = seen_by_ranks(TORCHRUN, tmp_path, "--nproc-per-node", 2, "--run-path", WITNESS, "a", "--b")
    ours = seen_by_ranks(SAFELAUNCH, tmp_path, "--nproc-per-node", 2, "--run-path", WITNESS, "a", "--b")

    for field in ("argv", "name", "file", "env", "main_pickles"):
        assert [rank[field] for rank in ours] == [rank[field] for rank in theirs]
    assert "hello\n" in [rank["stdin"] for rank in ours]


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_loader_workers_and_pickled_classes_of_the_script(method: str, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, FAULTS / "loader.py", method, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"rank {rank} {method} sum 120 __main__ Sample" for rank in range(2)]


def test_a_healthy_run_says_nothing(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, FAULTS / "victim.py", "none", 0, cwd=tmp_path)

    # But how much of the node was checked, in one line.
    checked, *rest = ended.err.splitlines()
    assert checked.startswith("safelaunch: preflight: ")
    assert (ended.code, ended.out, rest) == (0, "", [])

    quiet = launch("-q", "--nproc-per-node", 2, FAULTS / "victim.py", "none", 0, cwd=tmp_path)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_output_is_teed_with_the_prefix_of_torchrun(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--tee", 3, FAULTS / "hello.py", cwd=tmp_path)

    assert sorted(ended.out.splitlines()) == ["[default0]:hello 0", "[default1]:hello 1"]
    assert (ended.run_dir / "attempt_0/rank_001/stdout.log").read_text() == "hello 1\n"


def test_the_log_directory_of_torchrun_is_honoured(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 1, "--log-dir", tmp_path / "logs", "-r", 1, FAULTS / "hello.py", cwd=tmp_path)

    assert ended.code == 0
    assert [path.read_text() for path in (tmp_path / "logs").glob("*/attempt_0/0/stdout.log")] == ["hello 0\n"]


def test_pet_variables_are_honoured(tmp_path: Path) -> None:
    ended = launch(FAULTS / "hello.py", cwd=tmp_path, PET_NPROC_PER_NODE="2")

    assert sorted(ended.out.splitlines()) == ["hello 0", "hello 1"]

"""Which version of the program a run has started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from safelaunch.run import source_state


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "train.py").write_text("print(1)\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_the_commit_is_gits(repository: Path, tmp_path: Path) -> None:
    script, head = "scripts/train.py", git(repository, "rev-parse", "HEAD")
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))

    assert source_state.commit(str(repository / script)) == head
    assert source_state.commit(str(tmp_path / "tree" / script)) == head
    git(repository, "pack-refs", "--all")
    assert source_state.commit(str(repository / script)) == head
    assert source_state.commit(str(tmp_path / "tree" / script)) == head
    git(repository, "checkout", "-q", "--detach")
    assert source_state.commit(str(repository / script)) == head


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/nobody")

    assert source_state.commit(str(tmp_path / "train.py")) is None
    assert source_state.digest(str(tmp_path / "train.py")) is None

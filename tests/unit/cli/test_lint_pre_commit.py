"""The hook as pre-commit itself runs it. Skipped where pre-commit or git is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import REPOSITORY, environment

PRE_COMMIT, GIT = shutil.which("pre-commit"), shutil.which("git")
pytestmark = pytest.mark.skipif(not (PRE_COMMIT and GIT), reason="needs pre-commit and git")

JOB = "#!/bin/bash\nexport NCCL_IB_TIMEOUT=1000\npython train.py\n"


def call(*argv: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'bin'}:{environment()['PATH']}"
    env = environment(HOME=str(home), PRE_COMMIT_HOME=str(home / "cache"), PATH=path, GIT_CONFIG_NOSYSTEM="1")
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)


def repository(folder: Path, home: Path) -> Path:
    """A new repository of git with all that is in the folder."""
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    for argv in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "all")):
        done = call(str(GIT), *argv, cwd=folder, home=home)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a `safelaunch` on its PATH, for the hook takes the one that is installed."""
    program = tmp_path / "home" / "bin" / "safelaunch"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m safelaunch "$@"\n')
    program.chmod(0o755)
    return tmp_path / "home"


@pytest.fixture
def hooks(tmp_path: Path, home: Path) -> Path:
    """A repository that offers the hook."""
    (tmp_path / "hooks").mkdir()
    shutil.copy(REPOSITORY / ".pre-commit-hooks.yaml", tmp_path / "hooks")
    return repository(tmp_path / "hooks", home)


def test_pre_commit_runs_the_hook_on_files_of_jobs_only(tmp_path: Path, home: Path, hooks: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "job.sh").write_text(JOB)
    (work / "notes.md").write_text(f"```bash\n{JOB}```\n")
    (work / "data.txt").write_text("NCCL_IB_TIMEOUT=1000\n")
    repository(work, home)

    def tried(*files: str) -> subprocess.CompletedProcess[str]:
        return call(str(PRE_COMMIT), "try-repo", str(hooks), "safelaunch-lint", "--files", *files, cwd=work, home=home)

    failed = tried("job.sh", "notes.md", "data.txt")
    assert failed.returncode == 1, failed.stderr
    assert "error[SL213]: NCCL_IB_TIMEOUT=1000" in failed.stdout
    assert "--> job.sh:2:8" in failed.stdout
    assert "notes.md" not in failed.stdout
    passed = tried("notes.md", "data.txt")
    assert (passed.returncode, "Passed" in passed.stdout) == (0, True), passed.stdout

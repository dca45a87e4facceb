"""Scratch folders of launchers that were killed are removed by a later start, and nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import environment

from safelaunch.launch import run_dir, scratch

TOKEN = f"unit-test-token-{os.getpid()}"  # others may run these tests beside us, with processes that carry theirs
MAKES = f"""
import sys
from safelaunch.launch import run_dir, scratch
scratch.parents = lambda: (sys.argv[1],)
print(run_dir.create_scratch({TOKEN!r}, "/proc"))
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scratch, "parents", lambda: (str(tmp_path),))
    return tmp_path


@pytest.fixture
def abandoned(parent: Path) -> Path:
    """A folder whose maker has died, with something in it."""
    command = [sys.executable, "-c", MAKES, str(parent)]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    folder = Path(made.stdout.strip())
    (folder / "slots").mkdir()
    (folder / "slots" / "0").write_text("x")
    return folder


def test_what_a_dead_launcher_has_left_is_removed(abandoned: Path) -> None:
    scratch.sweep()
    assert not abandoned.exists()


@pytest.mark.usefixtures("parent")
def test_a_launcher_that_lives_keeps_its_folder() -> None:
    folder = Path(run_dir.create_scratch(TOKEN, "/proc"))
    scratch.sweep()
    assert folder.exists()


def test_a_run_that_lives_without_its_launcher_keeps_its_folder(abandoned: Path) -> None:
    environ = {**os.environ, "SAFELAUNCH_RUN_TOKEN": TOKEN}
    with subprocess.Popen(["cat"], env=environ, stdin=subprocess.PIPE) as process:
        scratch.sweep()
        assert abandoned.exists()
        process.stdin.close()  # type: ignore[union-attr]
    scratch.sweep()
    assert not abandoned.exists()


@pytest.mark.parametrize("name", ["namespace", "boot", "clocks"])
def test_where_the_pid_means_another_process_nobody_can_tell(name: str, abandoned: Path) -> None:
    maker = json.loads((abandoned / scratch.MAKER).read_text())
    (abandoned / scratch.MAKER).write_text(json.dumps({**maker, name: "another"}))
    scratch.sweep()
    assert abandoned.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"token": "unit-test-token"}', "{", None])
def test_a_folder_that_does_not_say_who_made_it_stays(text: str | None, abandoned: Path) -> None:
    (abandoned / scratch.MAKER).unlink()
    if text is not None:
        (abandoned / scratch.MAKER).write_text(text)
    scratch.sweep()
    assert abandoned.exists()


def test_the_name_alone_says_nothing(abandoned: Path) -> None:
    other = abandoned.rename(abandoned.with_name(f"{scratch.PREFIX}another"))
    scratch.sweep()
    assert other.exists()


def test_a_link_is_not_followed(abandoned: Path, parent: Path) -> None:
    real = abandoned.rename(parent / "elsewhere")
    abandoned.symlink_to(real)
    scratch.sweep()
    assert (real / "slots" / "0").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_stays(abandoned: Path) -> None:
    os.chown(abandoned, 12345, 12345)
    scratch.sweep()
    assert abandoned.exists()

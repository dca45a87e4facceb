"""Starts a Python as the agent starts a rank: the same injection, and this test in the agent's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import REPOSITORY, environment

from safelaunch import black_box, black_box_reader

INJECT = str(REPOSITORY / "safelaunch" / "worker" / "inject")


@dataclass(frozen=True)
class Rank:
    """What a rank did and left behind."""

    code: int
    out: str
    err: str
    pid: int
    folder: Path
    box: black_box_reader.Slot | None

    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.folder.glob("error-*.json")]

    @property
    def error(self) -> dict[str, Any]:
        """The one record of an uncaught exception, under the rank's own pid."""
        assert [path.name for path in self.folder.glob("error-*.json")] == [f"error-{self.pid}.json"], self.err
        return self.errors()[0]

    @property
    def fault(self) -> str:
        return (self.folder / f"fault-{self.pid}.txt").read_text()


def rank_environment(tmp_path: Path, pythonpath: str | None = None, **changes: str | None) -> dict[str, str]:
    """The environment that the agent would give local rank 0."""
    folder = tmp_path / "rank_000"
    folder.mkdir(exist_ok=True)
    box = tmp_path / "black_box"
    if not box.exists():
        black_box.create(str(box), 1)
    marks: dict[str, str | None] = {
        "PYTHONPATH": os.pathsep.join(filter(None, (INJECT, pythonpath))),
        "SAFELAUNCH_RANK_DIR": str(folder),
        "SAFELAUNCH_AGENT": str(os.getpid()),
        "SAFELAUNCH_SUPERVISOR": f"{os.getpid()}:0",
        "SAFELAUNCH_BLACK_BOX": str(box),
        "SAFELAUNCH_SLOT": "0",
    }
    return environment(**{**marks, **changes})


def run(
    tmp_path: Path, source: str, *, pythonpath: str | None = None, session: bool = False, **changes: str | None
) -> Rank:
    """Run `source` as the script of a rank to its end; `session` gives it one of its own, as the agent does."""
    script = tmp_path / "script.py"
    script.write_text(source)
    env = rank_environment(tmp_path, pythonpath, **changes)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=session,
    )
    out, err = process.communicate(timeout=60)
    box = tmp_path / "black_box"
    slot = black_box_reader.read(str(box), 0) if box.is_file() else None
    return Rank(process.returncode, out, err, process.pid, tmp_path / "rank_000", slot)


def bare(tmp_path: Path, source: str, *, pythonpath: str | None = None) -> str:
    """What the same script prints without safelaunch."""
    script = tmp_path / "script.py"
    script.write_text(source)
    env = environment(PYTHONPATH=pythonpath)
    return subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    ).stdout

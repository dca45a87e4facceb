"""Runs programs on GPUs that do not exist, with a CUDA build of torch (fake_gpus/README.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import REPOSITORY, Ended, environment, newest_run

FOLDER = Path(__file__).with_name("fake_gpus")
VENV = Path(os.environ.get("FAKE_GPUS_VENV", REPOSITORY / ".venv-gpus"))
NCCL = {"nccl2": "1", "nccl": "0"}  # torch's two backends, and TORCH_DIST_USE_NCCL2 for each


def by_turns(cases: Iterable[tuple[object, ...]]) -> list[object]:
    """Each case with both backends: with one of them in every run of the tests, with the other one in the long ones."""
    return [
        pytest.param(*case, backend, marks=[] if at % len(NCCL) == turn else [pytest.mark.long])
        for at, case in enumerate(cases)
        for turn, backend in enumerate(NCCL)
    ]


# From the dump to the abort torch waits for the dumps of peers: a minute, with the old backend.
SOON = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "2000"}


@dataclass(frozen=True)
class FakeGpus:
    """GPUs of this machine, for programs that are started with `environment()`."""

    python: Path
    state: Path  # what the GPUs do now, for NVML

    def environment(self, gpus: int = 4, backend: str = "nccl2", **changes: str | None) -> dict[str, str]:
        """The surroundings of a node with `gpus` GPUs, in which "nccl" is torch's `backend`; `changes` as in
        `harness.environment`."""
        given = {
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "FAKE_GPUS": str(gpus),
            "FAKE_GPUS_VENV": str(self.python.parent.parent),
            "FAKE_GPU_STATE": str(self.state),
            "TORCH_DIST_USE_NCCL2": NCCL[backend],
        }
        return environment(**{**given, **SOON, **changes})

    def start(self, *command: object, cwd: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start the venv's Python with these arguments and return at once."""
        return subprocess.Popen(
            [str(FOLDER / "with-fake-gpus"), str(self.python), *map(str, command)],
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: object, cwd: Path, environ: Mapping[str, str], timeout: float = 120) -> Ended:
        """Run it to its end; a run of safelaunch leaves its folder below `cwd/safelaunch_runs`."""
        process = self.start(*command, cwd=cwd, environ=environ)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # a launcher ends its ranks
            out, err = process.communicate(timeout=60)
            raise AssertionError(f"not over after {timeout:g} s\n{out}\n{err}") from None
        return Ended(process.returncode, out, err, newest_run(cwd))


def find(state: Path) -> FakeGpus | str:
    """The fake GPUs of this machine, or why it cannot have any. What has to be compiled is compiled.

    state: a file that need not be there; programs that share it share the GPUs
    """
    for program in ("gcc", "nm"):
        if shutil.which(program) is None:
            return f"needs {program}"
    if not (VENV / ".complete").exists():
        return f"{VENV} is not there, or not whole: `sh tests/rigs/fake_gpus/setup` makes it"
    done = subprocess.run(["sh", str(FOLDER / "compile"), str(VENV)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return FakeGpus(VENV / "bin/python", state)

"""Runs safelaunch as a user does, and looks at what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FAULTS = REPOSITORY / "tests" / "faults"
SAFELAUNCH = (sys.executable, "-m", "safelaunch")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def environment(**changes: str | None) -> dict[str, str]:
    """This environment without what a launcher or a terminal would have added. With SAFELAUNCH_WARM_START=0 all tests
    start their ranks as torchrun does."""
    prefixes = ("SAFELAUNCH_", "PET_", "TORCHELASTIC_", "NCCL_", "SLURM_", "BEAKER_")
    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "FORCE_COLOR"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes) and name not in names}
    kept["PYTHONPATH"] = str(REPOSITORY)
    kept["SAFELAUNCH_HISTORY"] = "0"  # what a test has run before says nothing of this one
    if os.environ.get("SAFELAUNCH_WARM_START"):
        kept["SAFELAUNCH_WARM_START"] = os.environ["SAFELAUNCH_WARM_START"]
    for name, value in changes.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    return kept


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    code: int
    out: str
    err: str
    run_dir: Path | None

    def read(self, name: str) -> Any:
        """A JSON document of the run directory."""
        assert self.run_dir is not None, self.err
        return json.loads((self.run_dir / name).read_text())

    @property
    def verdict(self) -> Any:
        return self.read("incident-0/verdict.json")

    def ours(self) -> list[str]:
        """The lines that safelaunch itself printed: from the root traceback, or the verdict, to the end."""
        lines = self.err.splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith(("---- traceback of", "error["))]
        return lines[starts[0] :] if starts else []


def launch(*arguments: object, cwd: Path, timeout: float = 90, stdin: str = "", **changes: str | None) -> Ended:
    """Run safelaunch to its end; runs go to `cwd/safelaunch_runs`."""
    process = subprocess.run(
        [*SAFELAUNCH, *map(str, arguments)],
        cwd=cwd,
        env=environment(**changes),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(process.returncode, process.stdout, process.stderr, newest_run(cwd))


def newest_run(cwd: Path) -> Path | None:
    """The run directory that was made last below `cwd/safelaunch_runs`."""
    folders = (path for path in (cwd / "safelaunch_runs").glob("*") if path.is_dir())
    runs = sorted(folders, key=lambda path: path.stat().st_mtime)
    return runs[-1] if runs else None


def start(*arguments: object, cwd: Path, **changes: str | None) -> subprocess.Popen[str]:
    """Start safelaunch and return at once."""
    return subprocess.Popen(
        [*SAFELAUNCH, *map(str, arguments)],
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_lines(process: subprocess.Popen[str], prefix: str, count: int) -> list[str]:
    """Block until the process has printed `count` lines with this prefix; the test's timeout is the limit."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        if line.startswith(prefix):
            found.append(line.rstrip("\n"))
            if len(found) == count:
                return found
    raise AssertionError(f"ended after {found}: {process.stderr.read() if process.stderr else ''}")


@contextlib.contextmanager
def busy(cores: int) -> Iterator[None]:
    """So many processes beside a run that take all the time they get, and end with this one, however that ends."""
    work = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    others = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def members(token: str) -> Iterator[int]:
    """The living processes that carry a run's token."""
    entry = b"SAFELAUNCH_RUN_TOKEN=" + token.encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environ = Path("/proc", name, "environ").read_bytes().split(b"\0")
            state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if entry in environ and state not in "ZX":
            yield int(name)


def token(run_dir: Path) -> str:
    """The run's token, as run.json keeps it."""
    value: str = json.loads((run_dir / "run.json").read_text())["plan"]["token"]
    return value


def survivors(run_dir: Path, within_s: float) -> list[int]:
    """Who is still alive of a run after `within_s` seconds; returns as soon as nobody is."""
    deadline = time.monotonic() + within_s
    mark = token(run_dir)
    while (left := list(members(mark))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left

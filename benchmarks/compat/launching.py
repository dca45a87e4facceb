"""Runs one program under one launcher, in a folder of its own, and takes down all that it leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from catalogue import Program

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCHERS = {
    "torchrun": ("torchrun",),
    "warm": ("safelaunch", "--warm-start"),
    "cold": ("safelaunch", "--no-warm-start"),
}
# What an installer makes: with `python -m` the folder of the program would come first on the launcher's own path.
COMMANDS = {"torchrun": "torch.distributed.run", "safelaunch": "safelaunch.__main__"}
COMMAND = """#!{python}
import sys
from {module} import main
if __name__ == "__main__":
    sys.exit(main())
"""
COLD = re.compile(r"cold start: (.*)")  # why safelaunch has started cold what was to be warm
WRITTEN = 1_000_000_000  # seconds since the epoch: when the files of a program were written
END_S = 3.0  # for processes that end by themselves once the launcher has
LISTED = ("PATH", "LANG", "LD_LIBRARY_PATH", "TZ")  # of our own environment


@dataclass(frozen=True)
class Outcome:
    """What a launch has left.

    Args:
        code: exit code of the launcher; None where it had to be killed.
        streams: `(attempt, rank, "stdout" or "stderr")` -> text, where streams are redirected.
        out: the launcher's stdout.
        err: the launcher's stderr: nothing here is compared.
        files: path -> kind, mode and content of what the program's folder holds, temporary files below `tmp`.
        after: what the program's `after` printed.
        left: commands of processes that were still there `END_S` later.
        cold: why the start was cold, where safelaunch says so.
        seconds: from start to exit.
    """

    code: int | None
    streams: Mapping[tuple[int, int, str], str]
    out: str
    err: str
    files: Mapping[str, tuple[str, str, bytes]]
    after: str
    left: Sequence[str]
    cold: str
    seconds: float


def environment(program: Program, base: Path) -> dict[str, str]:
    """Of a launch: nothing but what stands here.

    Args:
        program: to be run.
        base: of this program; `home` beside it is the home of all.
    """
    mine = {name: os.environ[name] for name in LISTED if name in os.environ}
    mine |= {"HOME": str(base.parent / "home"), "TMPDIR": str(base / "tmp"), "COMPAT_RUN": str(base)}
    mine |= {name: value.format(folder=base / "cwd") for name, value in program.environ.items()}
    mine["PYTHONPATH"] = os.pathsep.join(filter(None, [mine.get("PYTHONPATH"), str(REPOSITORY)]))
    return mine


def launch(program: Program, launcher: str, sandbox: Path) -> Outcome:
    """Run a program under a launcher. The folder is the same for each launcher, so that no path differs.

    Args:
        program: to be run.
        launcher: one of `LAUNCHERS`.
        sandbox: a folder of this invocation.
    """
    base = sandbox / program.name.replace("/", "-")
    shutil.rmtree(base, ignore_errors=True)
    for folder in (base / "cwd", base / "tmp", sandbox / "home"):
        folder.mkdir(parents=True, exist_ok=True)
    environ = environment(program, base)
    _write(program, base / "cwd")
    if program.prepare:
        _python(program.prepare, base / "cwd", environ)
    options = ["--nproc-per-node", str(program.ranks), "--log-dir", str(base / "logs")]
    if program.redirected:
        options += ["-r", "3"]
    if launcher != "torchrun":
        options += ["--run-dir", str(base / "runs")]
    name, *own = LAUNCHERS[launcher]
    command = [*program.wrapper, str(_command(name, sandbox)), *own, *options, *program.options, *program.command]

    begun = time.perf_counter()
    code, out, err = _run(command, program, base, environ)
    seconds = time.perf_counter() - begun
    left = _end_what_is_left(base)
    reason = COLD.search(err)
    return Outcome(
        code=code,
        streams=_streams(base / "logs"),
        out=out,
        err=err,
        files=_files(base),
        after=_python(program.after, base / "cwd", environ) if program.after else "",
        left=left,
        cold=reason.group(1) if reason else "",
        seconds=seconds,
    )


def _command(name: str, sandbox: Path) -> Path:
    path = sandbox / "bin" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{threading.get_ident()}")
        fresh.write_text(COMMAND.format(python=sys.executable, module=COMMANDS[name]))
        fresh.chmod(0o755)
        fresh.replace(path)  # several programs may be started at once
    return path


def _write(program: Program, folder: Path) -> None:
    for name, text in program.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (WRITTEN, WRITTEN))  # it stands in each .pyc


def _python(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", text]
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def _run(
    command: Sequence[str], program: Program, base: Path, environ: Mapping[str, str]
) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr. They go to files: what is left behind may keep a pipe open for ever."""
    given = base / "stdin"
    given.write_text(program.stdin or "")
    with (
        open(base / "out", "w+", errors="replace") as out,
        open(base / "err", "w+", errors="replace") as err,
        open(os.devnull if program.stdin is None else given) as stdin,
    ):
        process = subprocess.Popen(command, cwd=base / "cwd", env=environ, stdin=stdin, stdout=out, stderr=err)
        deadline = time.monotonic() + program.timeout
        code = None
        try:
            if program.signal:
                ready = [base / "cwd" / f"ready-{rank}" for rank in range(program.ranks)]
                while process.poll() is None and time.monotonic() < deadline and not all(p.exists() for p in ready):
                    time.sleep(0.02)
                process.send_signal(getattr(signal, program.signal))
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return code, *((base / name).read_text(errors="replace") for name in ("out", "err"))


def _streams(logs: Path) -> dict[tuple[int, int, str], str]:
    found = {}
    for path in logs.glob("*/attempt_*/*/std*.log"):
        attempt = int(path.parts[-3].partition("_")[2])
        found[attempt, int(path.parts[-2]), path.stem] = path.read_bytes().decode("utf-8", "backslashreplace")
    return found


def _files(base: Path) -> dict[str, tuple[str, str, bytes]]:
    found = {}
    for top in ("cwd", "tmp"):
        for path in sorted((base / top).rglob("*")):
            status = path.lstat()
            name = str(path.relative_to(base)).removeprefix("cwd/")
            if path.is_symlink():
                found[name] = "link", "", os.fsencode(os.readlink(path))
            elif path.is_file():
                found[name] = "file", oct(status.st_mode & 0o7777), path.read_bytes()
            else:
                found[name] = "folder" if path.is_dir() else "other", oct(status.st_mode & 0o7777), b""
    return found


def _end_what_is_left(base: Path) -> list[str]:
    """The commands of processes of this run that do not end by themselves; they are killed."""
    deadline = time.monotonic() + END_S
    while (pids := _members(base)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = []
    for pid in pids:
        try:
            left.append(Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode())
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    return sorted(left)


def _members(base: Path) -> list[int]:
    mark = b"COMPAT_RUN=" + os.fsencode(base)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue  # it has ended
    return found

"""`safelaunch attach` beside jobs that torchrun started: who is named, and that the job does not notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import FAULTS, SAFELAUNCH, TORCHRUN, environment

from safelaunch import black_box, procfs

SCRIPT = FAULTS / "attached.py"
LINES = SCRIPT.read_text().splitlines()


class Job:
    """A job of torchrun that is ready: its launcher, and the pid of each rank."""

    def __init__(self, folder: Path, mode: str, size: int) -> None:
        self.gate = folder / "gate"
        command = [*TORCHRUN, "--standalone", f"--nproc-per-node={size}", str(SCRIPT), mode, str(self.gate)]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, text=True
        )
        self.ranks: dict[int, int] = {}
        self.size = size

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        ready = 0
        while ready < self.size:
            line = self.process.stdout.readline()
            assert line, "torchrun has ended"
            ready += line.count("ready")  # ranks share the stream
        for child in procfs.descendants(self.process.pid, procfs.scan()):
            for rank in range(self.size):
                if child.ppid == self.process.pid and procfs.in_environ(child.pid, f"RANK={rank}".encode()):
                    self.ranks[rank] = child.pid

    def release(self) -> tuple[int, int]:
        """Let the job end; its exit code, and how many ranks came to their end in good order."""
        self.gate.touch()
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output.count("done")

    def end(self) -> None:
        below = procfs.descendants(self.process.pid, procfs.scan())
        self.process.kill()
        procfs.end(below, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def begin(mode: str, size: int = 3) -> Job:
        jobs.append(Job(tmp_path, mode, size))
        jobs[-1].wait_until_ready()
        return jobs[-1]

    yield begin
    for job in jobs:
        job.end()


def attach(folder: Path, *arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [*SAFELAUNCH, "attach", *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def settled(folder: Path, pid: int, code: str) -> Any:
    """What `attach` says once the ranks have come to where they stay: a rank says that it is ready before that."""
    for number in range(10):
        told = json.loads(attach(folder, pid, "--json", "--wait", "1", "--output", f"b{number}"))
        if told["verdict"]["code"] == code:
            return told
    raise AssertionError(told["verdict"])


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@pytest.mark.timeout(120)
def test_the_rank_that_sleeps_is_named_and_the_job_goes_on(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start("sleeps")

    told = settled(tmp_path, job.process.pid, "SL301")
    verdict = told["verdict"]
    assert verdict["culprit_ranks"] == [1]
    assert verdict["pid"] == job.ranks[1]
    assert verdict["location"]["line"] == line_of("time.sleep(0.2)")
    assert verdict["waiting"] == [0, 2]

    by_rank = json.loads(attach(tmp_path, job.ranks[2], "--json", "--wait", "1", "--output", "by-rank"))
    assert by_rank["verdict"]["culprit_ranks"] == [1]

    offline = subprocess.run(
        [*SAFELAUNCH, "diagnose", "--json", told["bundle"]],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=True,
    )
    assert json.loads(offline.stdout)["conclusions"][0]["verdict"] == verdict

    listed = attach(tmp_path, job.process.pid, "--list")
    assert [f"pid {pid} " in listed for pid in job.ranks.values()] == [True] * 3
    assert job.release() == (0, 3)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["healthy", "uneven"])
def test_a_job_that_makes_progress_blames_nobody(start: Callable[..., Job], tmp_path: Path, mode: str) -> None:
    job = start(mode)

    for number in range(3):
        told = json.loads(attach(tmp_path, job.process.pid, "--json", "--wait", "1", "--output", f"b{number}"))
        assert (told["verdict"]["code"], told["verdict"]["culprit_ranks"]) == ("SL502", [])
    assert job.release() == (0, 3)


@pytest.mark.timeout(120)
@pytest.mark.long
def test_a_rank_at_work_is_not_named(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start("spins")

    told = settled(tmp_path, job.process.pid, "SL399")
    assert told["verdict"]["culprit_ranks"] == []
    assert "rank 1 has not come, and it is at work" in told["verdict"]["summary"]
    assert job.release() == (0, 3)


@pytest.mark.timeout(120)
def test_a_stopped_rank_is_named(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start("sleeps")
    os.kill(job.ranks[1], signal.SIGSTOP)

    told = settled(tmp_path, job.process.pid, "SL304")
    assert told["verdict"]["culprit_ranks"] == [1]
    os.kill(job.ranks[1], signal.SIGCONT)
    assert job.release() == (0, 3)


@pytest.mark.timeout(120)
@pytest.mark.long
def test_the_line_of_a_stuck_loader_worker_is_named(start: Callable[..., Job], tmp_path: Path) -> None:
    job = start("loader")

    verdict = settled(tmp_path, job.process.pid, "SL307")["verdict"]
    assert verdict["culprit_ranks"] == [1]
    assert verdict["location"]["line"] == line_of("time.sleep(0.2)")
    assert "its loader worker pid" in " ".join(verdict["because"])
    assert job.release() == (0, 3)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mode", "code"), [("together", "SL310"), ("apart", "SL399")])
@pytest.mark.long
def test_where_all_wait_nobody_is_named(start: Callable[..., Job], tmp_path: Path, mode: str, code: str) -> None:
    verdict = settled(tmp_path, start(mode).process.pid, code)["verdict"]

    assert verdict["culprit_ranks"] == []
    assert str(line_of("dist.recv(x, src=(" if mode == "together" else "dist.recv(x, src=0)")) in str(
        verdict["because"]
    )


def test_misuse_is_told_in_one_message(tmp_path: Path) -> None:
    assert "error[SL006]: there is no process 4194300" in attach(tmp_path, 4194300, code=2)
    assert "is no rank of a distributed job" in attach(tmp_path, os.getpid(), code=2)
    assert "error[SL001]" in attach(tmp_path, "train.py", code=2)
    assert "--wait" in attach(tmp_path, 1, "--wait", "x", code=2)
    assert "exists already" in attach(tmp_path, 1, "--output", tmp_path, code=2)
    assert "no rank of a Slurm job 4711" in attach(tmp_path, "4711", "--job", code=2)


def alone(folder: Path) -> dict[str, str]:
    """The environment of the one rank of a job of its own: another test may run beside."""
    return environment(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", TORCHELASTIC_RUN_ID=str(folder))


RANK = "import sys, time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def hostile(folder: Path, kind: str) -> Path:
    """A black box, or a file beside it, that would hold or fill whoever reads it."""
    box = folder / "box"
    if kind == "fifo":
        os.mkfifo(box)
    elif kind == "device":
        return Path("/dev/zero")
    else:
        black_box.create(str(box), 1)
        black_box.Writer(str(box), 0)
        for what in ("groups", "device"):
            beside = Path(black_box.beside(str(box), 0, what))
            os.mkfifo(beside) if kind == "fifo-beside" else beside.symlink_to("/dev/zero")
    return box


@pytest.mark.parametrize("kind", ["fifo", "device", "fifo-beside", "device-beside"])
def test_what_a_process_names_can_neither_hold_nor_fill_the_reader(tmp_path: Path, kind: str) -> None:
    named = {"SAFELAUNCH_BLACK_BOX": str(hostile(tmp_path, kind)), "SAFELAUNCH_SLOT": "0"}
    environ = {**alone(tmp_path), **named}
    with subprocess.Popen([SAFELAUNCH[0], "-c", RANK], env=environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            told = json.loads(attach(tmp_path, process.pid, "--json", "--wait", "0.5", "--output", "out"))
        finally:
            process.kill()
    assert told["verdict"]["culprit_ranks"] == []
    source = "groups" if kind.endswith("beside") else "black_box"
    gap = json.loads((tmp_path / f"out/evidence/rank_000/{source}.json").read_text())
    assert "no regular file" in gap["unavailable"]
    stacks = json.loads((tmp_path / "out/evidence/rank_000/stack.json").read_text())
    assert stacks["data"]["threads"]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users take root")
def test_a_record_of_another_user_is_not_read(tmp_path: Path) -> None:
    black_box.create(str(tmp_path / "box"), 1)
    environ = alone(tmp_path)
    environ |= {"SAFELAUNCH_BLACK_BOX": str(tmp_path / "box"), "SAFELAUNCH_SLOT": "0"}
    os.chown(tmp_path / "box", 1234, 1234)
    with subprocess.Popen([SAFELAUNCH[0], "-c", RANK], env=environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            attach(tmp_path, process.pid, "--wait", "0.5", "--output", "out")
        finally:
            process.kill()
    seen = json.loads((tmp_path / "out/evidence/rank_000/black_box.json").read_text())
    assert "it belongs to another user than the process" in seen["unavailable"]


def test_the_folder_of_the_evidence_is_made_for_it_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [SAFELAUNCH[0], "-c", RANK],
        env=alone(tmp_path),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / "out").symlink_to("elsewhere")  # to nothing, which is not there yet
        said = attach(tmp_path, process.pid, "--wait", "0.5", "--output", "out")
    finally:
        process.kill()
        process.communicate()
    assert "out cannot be made: File exists; the evidence is in " in said
    assert not (tmp_path / "elsewhere").exists()

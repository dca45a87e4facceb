"""Each way in which ranks can hang: the right rank is named and nobody else, stacks are on disk, nothing is left."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from frozen_disk import Unavailable, frozen_disk
from harness import FAULTS, SAFELAUNCH, Ended, environment, launch, newest_run, start, survivors, wait_for_lines

HANG = FAULTS / "hang.py"
APART = FAULTS / "apart.py"
QUICKLY = ("--hang-abort-after", "8s")
NOTICE_S = 10.0  # from the last progress to the first line about it
CONCLUSIVE_S = 8.0  # 5 s on an idle machine, see benchmarks/hang_latency.py


@dataclass(frozen=True)
class Fault:
    kind: str
    code: str
    function: str | None
    culprits: tuple[int, ...]
    program: Path = HANG
    ranks: int = 4
    rank: int | None = None  # the one that meets the fault, where it is not the culprit
    slow: bool = True
    words: tuple[object, ...] = ()

    @property
    def arguments(self) -> list[object]:
        rank = self.rank if self.rank is not None else self.culprits[0]
        return ["--nproc-per-node", self.ranks, *QUICKLY, self.program, self.kind, rank, *self.words]


# The function is the one whose line the verdict must point to.
LATE = (
    Fault("sleep", "SL301", "sleep", (3,), slow=False),
    Fault("sleep", "SL301", "sleep", (0,), ranks=2),
    Fault("poll", "SL301", "poll", (1,)),
    Fault("queue_get", "SL301", "queue_get", (0,)),
    Fault("lock", "SL313", "lock", (1,)),
    Fault("subprocess_wait", "SL301", "subprocess_wait", (2,)),
    Fault("busy", "SL301", "busy", (1,)),
    Fault("future", "SL301", "sleep", (1,)),
    Fault("thread", "SL301", "sleep", (1,)),
    Fault("loader", "SL307", "__getitem__", (1,)),
    Fault("loader_worker", "SL307", "__getitem__", (2,), slow=False),
    Fault("stopped", "SL304", "stopped", (3,)),
    Fault("gil_sleep", "SL305", "gil_sleep", (1,)),
    Fault("gil_regex", "SL305", "gil_regex", (2,)),
    Fault("save", "SL308", "save", (0,)),
    Fault("never_init", "SL309", "sleep", (1,)),
    Fault("new_group", "SL301", "sleep", (2,)),
    Fault("subgroup", "SL301", "sleep", (3,), words=(3600, 600)),
    Fault("pipeline", "SL301", "sleep", (1,)),
    Fault("ddp", "SL301", "sleep", (2,)),
    Fault("overlapped", "SL301", "sleep", (2,)),
)
APARTS = (
    Fault("skipped", "SL302", "skipped", (2,), APART),
    Fault("different", "SL302", "different", (1,), APART),
    Fault("one_rank_section", "SL302", "log_metrics", (0,), APART),
    Fault("one_rank_section", "SL302", None, (), APART, ranks=2, rank=0),
    Fault("no_backward", "SL303", "no_backward", (1,), APART),
    Fault("no_backward_with_buffers", "SL302", "no_backward_with_buffers", (1,), APART),
    Fault("out_of_data", "SL303", "out_of_data", (3,), APART, slow=False),
    Fault("all_but_one_out_of_data", "SL303", "all_but_one_out_of_data", (), APART, rank=0),
    Fault("order", "SL311", "order", (2,), APART),
    Fault("order", "SL311", "order", (), APART, ranks=2, rank=1),
    Fault("recv_of_nothing", "SL311", "recv_of_nothing", (1,), APART),
    Fault("forgot_to_send", "SL311", None, (1,), APART, rank=1),
    Fault("both_receive", "SL311", "both_receive", (), APART, ranks=2, rank=0),
)


def name(fault: Fault) -> str:
    return f"{fault.kind}-{fault.ranks}"


def cases(faults: tuple[Fault, ...]) -> list[object]:
    return [pytest.param(fault, id=name(fault), marks=[pytest.mark.long] * fault.slow) for fault in faults]


@pytest.mark.parametrize("fault", cases(LATE + APARTS))
def test_the_culprit_and_nobody_else_is_named(fault: Fault, tmp_path: Path) -> None:
    ended = launch(*fault.arguments, cwd=tmp_path)

    print(ended.err)  # shown with `-rP`
    assert ended.code == 124, ended.err
    verdict = ended.verdict
    assert verdict["kind"] == "hang"
    assert (verdict["code"], tuple(verdict["culprit_ranks"])) == (fault.code, fault.culprits), ended.err
    if fault.function is not None:
        assert verdict["location"] is not None, ended.err
        assert verdict["location"]["file"] == str(fault.program)
        assert verdict["location"]["function"].rpartition(".")[2] == fault.function

    # Told early, and with the same name as in the end.
    notices = [line for line in ended.err.splitlines() if "without progress" in line or "s so far" in line]
    assert len(notices) == 1, ended.err
    # Of a rank that computes nobody knows yet that anything is wrong.
    assert notices[0].startswith(f"safelaunch: {fault.code}: ") or "is at work" in notices[0]
    assert ended.err.index(notices[0]) < ended.err.index(f"error[{fault.code}]")
    limit = CONCLUSIVE_S if verdict["conclusive"] else NOTICE_S
    assert verdict["detected_after_s"] <= limit

    # The verdict is short, and nothing comes after it.
    ours = ended.ours()
    assert len(ours) <= 10, ended.err
    assert ours[0].startswith(f"error[{fault.code}]")
    assert ours[-1].endswith("exit 124")

    for rank in range(fault.ranks):
        stack = (ended.run_dir / f"incident-0/evidence/rank_{rank:03d}/stack.txt").read_text()
        assert fault.program.name in stack
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.long
@pytest.mark.rig
def test_a_rank_that_sleeps_in_the_kernel_holds_up_nobody(tmp_path: Path) -> None:
    command = [*SAFELAUNCH, "--nproc-per-node", "4", *QUICKLY, str(HANG), "frozen_disk", "2"]
    log = tmp_path / "log"
    try:
        with frozen_disk(tmp_path) as disk, log.open("w") as file:  # the rank would keep a pipe open
            env = environment(FROZEN_DISK=str(disk))
            code = subprocess.run(command, cwd=tmp_path, env=env, stdout=file, stderr=file, timeout=90).returncode
    except Unavailable as refused:
        pytest.skip(f"no frozen disk: {refused}")

    ended = Ended(code, "", log.read_text(), newest_run(tmp_path))
    print(ended.err)
    assert ended.code == 124, ended.err
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL306", [2]), ended.err
    assert ended.verdict["location"]["function"] == "frozen_disk"
    assert f"uninterruptible sleep in the kernel: openat() on {disk}/model.pt" in ended.err
    assert "even SIGKILL does not end" in ended.err
    for rank in (0, 1, 3):
        assert HANG.name in (ended.run_dir / f"incident-0/evidence/rank_{rank:03d}/stack.txt").read_text()
    assert survivors(ended.run_dir, within_s=5) == []  # it went when the disk was thawed


GONE = ("out_of_data_and_destroy", "out_of_data_destroy_and_upload", "exit_0_in_pairs", "exit_0_in_pairs_held")


@pytest.mark.long
@pytest.mark.parametrize("kind", GONE)
def test_a_rank_that_left_is_named(kind: str, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 4, *QUICKLY, APART, kind, 3, cwd=tmp_path)

    print(ended.err)
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL408", [3]), ended.err
    assert ended.code == 1
    assert survivors(ended.run_dir, within_s=5) == []


# What is done about a hang


def finish(process: subprocess.Popen[str], cwd: Path, before: str = "") -> Ended:
    """The end of a process that was started; `before` is what has been read of its stderr."""
    out, err = process.communicate(timeout=90)
    return Ended(process.returncode, out, before + err, newest_run(cwd))


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What the process says on stderr, up to the line with this text."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it never said {text!r}: {said}")


def start_and_stop_a_rank(cwd: Path, *flags: object) -> tuple[subprocess.Popen[str], int, str]:
    """A run whose rank 1 is stopped, after the notice of it; with the pid of that rank and what was said."""
    process = start("--nproc-per-node", 2, *flags, HANG, "stopped", 1, cwd=cwd)
    (line,) = wait_for_lines(process, "stopping", 1)
    return process, int(line.split()[1]), read_until(process, "without progress")


def test_with_report_nobody_is_ended_and_progress_that_returns_is_told(tmp_path: Path) -> None:
    process, pid, said = start_and_stop_a_rank(tmp_path, "--on-hang", "report", "--hang-abort-after", "2s")
    assert said.rstrip().endswith("watching on")
    time.sleep(4)
    assert process.poll() is None

    os.kill(pid, signal.SIGCONT)

    ended = finish(process, tmp_path, said)
    assert ended.code == 0, ended.err
    assert re.search(r"SL501: progress returned after \d+ s; the run goes on", ended.err)
    assert "error[" not in ended.err
    verdict = ended.verdict
    assert (verdict["kind"], verdict["code"], verdict["culprit_ranks"]) == ("slow", "SL501", [1])
    assert [each["code"] for each in ended.read("result.json")["verdicts"]] == ["SL501"]
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.long
def test_without_a_limit_the_run_goes_on_when_progress_returns(tmp_path: Path) -> None:
    process, pid, said = start_and_stop_a_rank(tmp_path)
    time.sleep(5)

    os.kill(pid, signal.SIGCONT)

    ended = finish(process, tmp_path, said)
    assert ended.code == 0, ended.err
    assert "progress returned" in ended.err
    assert (ended.verdict["kind"], ended.verdict["code"]) == ("slow", "SL501")


@pytest.mark.long
def test_abort_does_not_restart(tmp_path: Path) -> None:
    flags = ("--nproc-per-node", 2, "--on-hang", "abort", "--max-restarts", 1)
    ended = launch(*flags, *QUICKLY, HANG, "sleep", 1, cwd=tmp_path)

    assert ended.code == 124, ended.err
    assert "restarting" not in ended.err
    assert len(ended.read("result.json")["attempts"]) == 1


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_restart_is_watched_as_well(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--max-restarts", 1, *QUICKLY, HANG, "sleep", 1, cwd=tmp_path, timeout=150)

    assert ended.code == 124, ended.err
    assert "restarting: attempt 1 of 1" in ended.err
    assert len(ended.read("result.json")["attempts"]) == 2
    for incident in ("incident-0", "incident-1"):
        verdict = ended.read(f"{incident}/verdict.json")
        assert (verdict["kind"], verdict["code"], verdict["culprit_ranks"]) == ("hang", "SL301", [1])
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.long
def test_whoever_loses_patience_is_told_why(tmp_path: Path) -> None:
    process = start("--nproc-per-node", 2, "--shutdown-timeout", 2, HANG, "sleep", 1, cwd=tmp_path)
    said = read_until(process, "without progress")

    process.send_signal(signal.SIGINT)

    ended = finish(process, tmp_path, said)
    assert ended.code == 130
    ours = ended.ours()
    assert ours[0].startswith("error[SL301]: rank 1 sleeps in "), ended.err
    assert ours[-1].endswith("exit 130")
    assert len(ours) <= 10
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.long
def test_a_profile_sets_the_limit(tmp_path: Path) -> None:
    (tmp_path / "hasty.toml").write_text('[hang]\nabort_after = "7s"\n')
    ended = launch("--nproc-per-node", 2, "--profile", "./hasty.toml", HANG, "sleep", 0, cwd=tmp_path)

    assert ended.code == 124, ended.err
    assert ended.verdict["culprit_ranks"] == [0]
    limit = "the limit that was set, 7s, ended the run: longer work needs a longer one"
    assert limit in ended.verdict["because"]  # it may have been a checkpoint


@pytest.mark.long
def test_a_job_without_groups_is_told_once_that_only_its_end_is_watched(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, FAULTS / "healthy.py", "generation", 30, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert ended.err.count("no rank has used torch.distributed so far") == 1
    assert "without progress" not in ended.err


# A person at the keyboard


def debugged(cwd: Path, seconds: float, *flags: object) -> Ended:
    """A run with rank 0 in pdb, on a terminal, answered after a while."""
    ours, theirs = pty.openpty()
    command = [*SAFELAUNCH, "--nproc-per-node", "2", *map(str, flags), str(FAULTS / "healthy.py"), "debugger"]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(PYTHONUNBUFFERED="1"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    try:
        shown = b""
        assert process.stdout is not None
        while b"(Pdb)" not in shown:
            more = os.read(process.stdout.fileno(), 4096)
            assert more, shown
            shown += more
        time.sleep(seconds)
        os.write(ours, b"c\n")
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(ours)
    return Ended(process.returncode, (shown + out).decode(), err.decode(), newest_run(cwd))


@pytest.mark.long
def test_a_rank_in_a_debugger_is_not_hanging(tmp_path: Path) -> None:
    ended = debugged(tmp_path, 15, "--hang-abort-after", "6s")

    assert ended.code == 0, ended.err
    assert "without progress" not in ended.err
    assert ended.read("result.json")["verdicts"] == []

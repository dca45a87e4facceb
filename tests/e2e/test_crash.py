"""Each way in which a rank can die: the right rank is named, nobody else, and nothing is left running."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import FAULTS, launch, survivors

VICTIM = FAULTS / "victim.py"


@dataclass(frozen=True)
class Fault:
    kind: str
    code: str
    function: str | None
    culprits: tuple[int, ...] = (1,)
    said: str = ""


# The function is the one whose line the verdict must point to; None where no Python line can be known.
RANKS_FAULTS = (
    Fault("exception", "SL401", "compute", said="ValueError: bad batch at step 5"),
    Fault("chained", "SL401", "compute", said="KeyError: 'label'"),
    Fault("relay", "SL401", "main", said="OSError: disk on fire"),
    Fault("everyone", "SL402", "main", culprits=(), said="FileNotFoundError: /data/missing"),
    Fault("truncate", "SL401", "compute", said="PermissionError: [Errno 1] Operation not permitted"),
    Fault("sigkill", "SL403", None),
    Fault("segfault", "SL405", "compute"),
    Fault("abort", "SL406", "compute"),
    Fault("exit", "SL407", "compute"),
    Fault("sysexit", "SL407", "compute"),
    Fault("usage", "SL415", "main", culprits=(), said="victim.py: error: unrecognized arguments: --lr"),
    Fault("raised_exit", "SL415", "main", culprits=(), said="every rank left by SystemExit: no data in /data"),
    Fault("leave", "SL408", "compute"),
    Fault("leave_quietly", "SL408", "compute"),
    Fault("import", "SL409", "compute", said="a_module_that_does_not_exist"),
    Fault("early_import", "SL409", "main", said="another_missing_module"),
    Fault("syntax", "SL409", "<module>", said="SyntaxError"),
    Fault("small_tensor", "SL410", "main"),
    Fault("big_tensor", "SL410", "main"),
)


# Each of these is another shape of one that stays in CI.
LONG = {"early_import", "leave", "raised_exit", "sysexit", "big_tensor", "relay"}
FAULTS_BY_LENGTH = [
    pytest.param(fault, id=fault.kind, marks=[pytest.mark.long] * (fault.kind in LONG)) for fault in RANKS_FAULTS
]


@pytest.mark.parametrize("fault", FAULTS_BY_LENGTH)
def test_the_culprit_and_nobody_else_is_named(fault: Fault, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 4, VICTIM, fault.kind, 1, cwd=tmp_path)

    assert ended.code == 1
    verdict = ended.verdict
    assert (verdict["code"], tuple(verdict["culprit_ranks"])) == (fault.code, fault.culprits), ended.err
    assert not set(verdict["secondary"]) & set(fault.culprits)
    if fault.function is None:
        assert verdict["location"] is None
    else:
        assert verdict["location"]["function"] == fault.function
        assert Path(verdict["location"]["file"]).parent == FAULTS

    # The root traceback and the verdict, on one screen, and nothing after them.
    ours = ended.ours()
    assert len(ours) <= 25, ended.err
    assert ours[-1].endswith("exit 1")
    assert any(line.startswith(f"error[{fault.code}]") for line in ours[-10:])
    assert fault.said in "\n".join(ours)

    # Every rank left a stack, or the reason why there is none.
    for rank in range(4):
        assert (ended.run_dir / f"incident-0/evidence/rank_{rank:03d}/stack.txt").read_text().strip()
    assert survivors(ended.run_dir, within_s=5) == []


def test_a_message_of_50_megabytes_is_cut_wherever_it_is_kept(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, VICTIM, "long", 1, cwd=tmp_path)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL401", [1])
    assert sum(map(len, ended.ours())) < 10_000
    assert ended.run_dir is not None
    own = (path for path in ended.run_dir.rglob("*") if path.is_file())
    sizes = {path.name: path.stat().st_size for path in own if path.name not in ("agent.log", "error.json")}
    assert max(sizes.values()) < 200_000, sizes  # the other two are torch elastic's own


@pytest.mark.parametrize("culprit", [0, pytest.param(3, marks=pytest.mark.long)])
def test_any_rank_can_be_the_culprit(culprit: int, tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 4, VICTIM, "exception", culprit, cwd=tmp_path)

    assert ended.verdict["culprit_ranks"] == [culprit]


def test_two_ranks_with_different_tensors_blame_nobody(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, VICTIM, "small_tensor", 1, cwd=tmp_path)

    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL410", [])
    assert "10 x float32" in ended.err
    assert "1000 x float32" in ended.err


def test_stacks_of_the_ranks_that_were_alive_are_on_disk(tmp_path: Path) -> None:
    # The peers of `early_import` wait in init_process_group and do not notice anything themselves.
    ended = launch("--nproc-per-node", 3, VICTIM, "early_import", 2, cwd=tmp_path)

    for rank in (0, 1):
        stack = (ended.run_dir / f"incident-0/evidence/rank_{rank:03d}/stack.txt").read_text()
        assert "victim.py" in stack


def test_the_shutdown_timeout_holds_for_failures(tmp_path: Path) -> None:
    # torchrun takes 30 s here, whatever --shutdown-timeout says.
    ended = launch("--nproc-per-node", 4, "--shutdown-timeout", 1, VICTIM, "ignore_sigterm", 1, cwd=tmp_path)

    assert ended.code == 1
    assert ended.verdict["culprit_ranks"] == [1]
    result = ended.read("result.json")
    worker = next(worker for worker in result["attempts"][0]["workers"] if worker["rank"] == 2)
    assert worker["exit"]["code"] == -9
    assert result["elapsed_s"] < 25
    assert survivors(ended.run_dir, within_s=5) == []


def test_a_rank_waits_for_one_that_left(tmp_path: Path) -> None:
    # Nobody's connection breaks: the one that left is stopped from closing it by a child that holds it open.
    ended = launch("--nproc-per-node", 3, "--shutdown-timeout", 2, VICTIM, "leave_open", 1, cwd=tmp_path)

    assert ended.code == 1
    assert (ended.verdict["code"], ended.verdict["culprit_ranks"]) == ("SL408", [1]), ended.err
    assert "waited in all_reduce" in ended.err
    assert survivors(ended.run_dir, within_s=5) == []


def test_a_restart_goes_on_where_a_rank_failed(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "--max-restarts", 1, VICTIM, "exception_once", 1, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert ended.verdict["culprit_ranks"] == [1]
    assert "SL401: rank 1 raised ValueError: only the first time" in ended.err
    assert "restarting: attempt 1 of 1" in ended.err
    attempts = ended.read("result.json")["attempts"]
    assert [attempt["attempt"] for attempt in attempts] == [0, 1]
    assert [worker["exit"]["code"] for worker in attempts[1]["workers"]] == [0, 0]


def test_logs_of_every_rank_are_kept_where_asked(tmp_path: Path) -> None:
    ended = launch("--nproc-per-node", 2, "-r", 3, VICTIM, "exception", 1, cwd=tmp_path)

    assert "ValueError" in (ended.run_dir / "attempt_0/rank_001/stderr.log").read_text()
    assert (ended.run_dir / "attempt_0/rank_000/stdout.log").exists()


@pytest.mark.parametrize("stream", ["--tee", "--redirects"])
def test_a_rank_that_says_why_only_on_stderr_is_quoted(stream: str, tmp_path: Path) -> None:
    program = '[ "$RANK" = 1 ] && { echo "panic: shard 17 is <gone>" >&2; exit 3; }; exec sleep 60'

    ended = launch("--nproc-per-node", 2, stream, 3, "--no-python", "sh", "-c", program, cwd=tmp_path)

    verdict = ended.verdict
    assert (verdict["code"], verdict["culprit_ranks"]) == ("SL407", [1]), ended.err
    assert "its last line: panic: shard 17 is <gone>" in verdict["because"]
    assert ended.run_dir is not None
    page = (ended.run_dir / "incident-0/report.html").read_text()
    assert "The last lines of rank 1" in page
    assert "panic: shard 17 is &lt;gone&gt;" in page

# ruff: noqa: E501 - lines of logs are as long as they are
"""What a parent writes of the process that it waited for: a death by a signal comes before what lost it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_no_false_all_clear import judged

STEPS = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(20))
LOST = "[rank1]:[W302 10:00:57.421222505 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=60, addr=[localhost]:5715, remote=[localhost]:3135): Broken pipe\n"


@pytest.mark.parametrize(
    ("line", "code", "signal"),
    [
        ("[10:00:56] Child process failed unexpectedly with exitcode=134. pid=4711", "SL406", "SIGABRT"),
        ("the worker process (pid=4711) died with exit code -11", "SL405", "SIGSEGV"),
        ("Subprocess has exited with return code: 139, pid: 4711", "SL405", "SIGSEGV"),
        ("the child process (pid: 4711) was killed by signal SIGBUS", "SL405", "SIGBUS"),
        ("child process ended with status 137 (pid 4711)", "SL403", "SIGKILL"),
    ],
)
def test_a_death_that_a_parent_tells_leads_over_what_lost_it(tmp_path: Path, line: str, code: str, signal: str) -> None:
    for text in (f"{STEPS}{LOST}{line}\n{LOST}", f"{STEPS}{line}\n{LOST}"):
        verdict = judged(tmp_path, text)

        assert verdict.code == code
        assert "4711" in verdict.summary
        assert signal in verdict.summary
        assert verdict.culprit_ranks == ()


def test_a_rank_that_a_parent_names_is_that_rank(tmp_path: Path) -> None:
    for line in ("Rank 3 (pid 4711) exited with code -11", "rank 3 was terminated by SIGSEGV"):
        verdict = judged(tmp_path, f"{STEPS}{LOST}{line}\n")

        assert (verdict.code, verdict.culprit_ranks) == ("SL405", (3,)), line


def test_a_child_that_was_asked_to_end_or_failed_with_a_code_is_no_cause(tmp_path: Path) -> None:
    for said in ("exitcode=143", "exitcode=1", "exit code -15", "exit code 131"):
        verdict = judged(tmp_path, f"{STEPS}{LOST}Child process failed unexpectedly with {said}. pid=4711\n")

        assert verdict.code in ("SL412", "SL499"), said


def test_an_abort_after_a_watchdog_gave_up_follows_from_that(tmp_path: Path) -> None:
    gave_up = "[rank1]:[E302 10:00:44.810031290 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
    verdict = judged(tmp_path, f"{STEPS}{gave_up}Child process failed unexpectedly with exitcode=134. pid=4711\n")

    assert verdict.kind == "hang"

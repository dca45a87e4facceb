"""Logs of torch 2.15's two NCCL backends, as ranks on fake GPUs and torchrun wrote them, and parts of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import REPOSITORY

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence import logs
from safelaunch.model import Verdict

RECORDED = REPOSITORY / "tests" / "dumps"


def judged(path: Path) -> Verdict:
    return diagnose(logs.read([str(path)], logs.load([])))


def told(verdict: Verdict) -> str:
    return " / ".join((verdict.summary, *verdict.because))


EXPECTED = {
    "nccl-late": ("SL301", (1,), "medium", "rank 1 never entered ALLREDUCE #7; 3 peers waited for it"),
    "nccl-kernel": ("SL399", (), "low", "ranks 0-3 waited in the same ALLREDUCE #7"),
    "nccl2-late": ("SL301", (1,), "low", "rank 1 wrote of no timeout, and all others did: it is late, or has ended"),
    "nccl2-subgroup": ("SL301", (1,), "low", "3 peers waited for it"),
    "nccl2-subgroup-of-default": (
        "SL399",
        (),
        "low",
        "ranks 0 and 1 wrote nothing of that: one of them at least is late",
    ),
    "nccl2-pipeline": ("SL301", (1,), "low", "rank 1 wrote of no timeout"),
    "nccl2-size": ("SL399", (), "low", "ranks 0-3 timed out in operations that the log does not name"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_log_of_a_job_that_its_watchdog_ended(name: str) -> None:
    code, culprits, confidence, mention = EXPECTED[name]
    verdict = judged(RECORDED / name / "log.txt")

    assert (verdict.code, verdict.culprit_ranks, verdict.confidence) == (code, culprits, confidence), told(verdict)
    assert mention in told(verdict)
    assert not set(verdict.culprit_ranks) & set(verdict.waiting)


def test_the_lines_of_the_abort_alone_tell_as_much(tmp_path: Path) -> None:
    lines = (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines(keepends=True)
    (tmp_path / "job.log").write_text("".join(line for line in lines if "Operation timed out" not in line))

    assert judged(tmp_path / "job.log").culprit_ranks == (1,)


def spoken(lines: list[str], *, also: str = "[rank1]: step 7\n") -> str:
    """Lines of the ranks that waited, after a line of the one that did not."""
    return also + "".join(f"{line}\n" for line in lines if "[TC]" in line)


def test_lines_without_torchruns_prefix_name_their_ranks(tmp_path: Path) -> None:
    lines = (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines()
    (tmp_path / "job.log").write_text(spoken([re.sub(r"^\[rank\d+\]:", "", line) for line in lines]))

    assert judged(tmp_path / "job.log").culprit_ranks == (1,)


@pytest.mark.parametrize("world", ["", "world_size: 4\n"], ids=["of unknown size", "of known size"])
def test_a_rank_of_which_no_line_is_there_is_not_known_to_be_silent(tmp_path: Path, world: str) -> None:
    lines = (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines()
    (tmp_path / "job.log").write_text(spoken(lines, also=world))
    verdict = judged(tmp_path / "job.log")

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())
    assert "the logs do not say whether rank 1 did" in verdict.summary


def test_the_silence_of_a_rank_says_nothing_in_a_log_that_is_cut(tmp_path: Path) -> None:
    lines = (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines()
    (tmp_path / "job.log").write_text(spoken(lines) + "[rank1]:[E1123 21:56:14.8 WorkNCCL.cpp:372] [TC][rank=1][na")
    verdict = judged(tmp_path / "job.log")

    assert verdict.culprit_ranks == ()
    assert "ends within a sentence" in told(verdict)


def test_where_the_size_of_the_job_is_known_a_late_rank_is_named_with_medium_confidence(tmp_path: Path) -> None:
    lines = (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines()
    (tmp_path / "job.log").write_text("world_size: 4\n" + spoken(lines))
    verdict = judged(tmp_path / "job.log")

    assert (verdict.culprit_ranks, verdict.confidence) == ((1,), "medium")


def test_an_exception_of_the_silent_rank_explains_its_silence(tmp_path: Path) -> None:
    lines = [line for line in (RECORDED / "nccl2-late" / "log.txt").read_text().splitlines() if "[TC]" in line]
    raised = [
        "Traceback (most recent call last):",
        '  File "/home/ada/train.py", line 88, in <module>',
        "    loss = step(batch)",
        "ValueError: loss is nan",
    ]
    (tmp_path / "job.log").write_text("\n".join([*(f"[rank1]: {line}" for line in raised), *lines, ""]))
    verdict = judged(tmp_path / "job.log")

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (1,)), told(verdict)


def test_ranks_that_ended_in_an_error_of_nccl_did_not_wait(tmp_path: Path) -> None:
    text = (RECORDED / "nccl2-late" / "log.txt").read_text()
    text = "".join(line for line in text.splitlines(keepends=True) if "Operation timed out" not in line)
    (tmp_path / "job.log").write_text(text.replace("due to timeout - timeout", "due to error - NCCL error; no"))

    assert judged(tmp_path / "job.log").code != "SL301"

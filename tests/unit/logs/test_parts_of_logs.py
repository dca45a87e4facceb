# ruff: noqa: E501 - lines of logs are as long as they are
"""Logs that are a part of a longer one, and sentences that two processes wrote into each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import WORLD, watchdog
from test_no_false_all_clear import STEPS, judged

from safelaunch.evidence import logs

WORK = "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000)"
CAUGHT = "[Rank {}] Watchdog caught collective operation timeout: "
RAN = " ran for 600012 milliseconds before timing out."

CUT = {
    "at its end, within a call": (STEPS + "[rank3]:[E515 18:36:47.341 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught coll", "ends within"),
    "at its end, within brackets": (STEPS + "[rank3]: loss of the last batch (mean", "ends within"),
    "at its end, within a traceback": (STEPS + '  File "/srv/train.py", line 3, in step\n', "ends within"),
    "at its beginning, within a call": (f"LREDUCE, NumelIn=5, Timeout(ms)=600000){RAN}\n{STEPS}", "begins within"),
    "at its beginning, where others have marks": ("ation of it all\n" + "[rank0]: step 1 loss 2\n" * 9, "begins within"),
    "by a hand": (f"{STEPS}...\n{STEPS}", "lines were left out"),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_a_part_of_a_log_is_known_and_not_said_to_be_all_right(tmp_path: Path, name: str) -> None:
    text, how = CUT[name]
    verdict = judged(tmp_path, text)

    assert how in logs.read([str(tmp_path / "job.log")]).cut
    assert verdict.code != "SL498"


WHOLE = [
    STEPS,
    STEPS.rstrip(),
    "[rank0]: step 1 (of 2)\n[rank0]: step 2 (of 2)",
    "step 1\nstep 2 {'loss': 2}\n",
    f"W0515 18:36:51.700000 3900 torch/distributed/run.py:793] \n{STEPS}",
    f"ERROR 07-01 10:00:00 worker_base.py:382] odd\n{STEPS}",
    f"{STEPS}[rank1]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:632] [Rank 1] Something is odd.",
    f"{STEPS}(EngineCore_DP0 pid=300) ERROR 05-15 18:36:48 [core.py:708] odd",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_whole_log_is_not_taken_for_a_part(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.log").write_text(text)

    assert logs.read([str(tmp_path / "job.log")]).cut == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WORLD.format(4) + "".join(watchdog(i) for i in (0, 1, 2)), "no line of rank 3 is in the logs"),
        (
            WORLD.format(4) + "[rank3]: step 1\n" + "".join(watchdog(i) for i in (0, 1, 2)),
            "no timeout of rank 3 is in the logs: late, ended before it could, or its line is missing",
        ),
        (WORLD.format(4) + "".join(watchdog(i) for i in (0, 1, 2)) + watchdog(3)[:120], "which says nothing: "),
    ],
    ids=["no line of it", "a line of it", "cut"],
)
def test_it_is_told_what_the_silence_of_a_rank_means(tmp_path: Path, text: str, says: str) -> None:
    verdict = judged(tmp_path, text)

    assert verdict.culprit_ranks == ()
    assert any(says in reason for reason in verdict.because), verdict.because


MIXED = {
    "two marks, one work": "[rank0]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:632] [rank1]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:632] "
    + CAUGHT.format(0) + CAUGHT.format(1) + WORK + RAN + f"\n{WORK}{RAN}\n",
    "one within the other": CAUGHT.format(0) + WORK[:35] + CAUGHT.format(1) + WORK + RAN + "\n" + WORK[35:] + RAN + "\n",
    "a blocking wait": f"[rank1]: torch.distributed.DistBackendErr[rank0]: torch.distributed.DistBackendError: [Rank 0] Work {WORK} timed out in blocking wait\n",
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_an_intact_piece_tells_of_the_call_and_of_no_rank(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, MIXED[name])

    assert (verdict.code, verdict.culprit_ranks, verdict.seq, verdict.operation) == ("SL399", (), 12, "allreduce")
    assert "subgroup" not in verdict.summary


def test_a_blocking_wait_that_timed_out_is_a_timeout_of_its_rank(tmp_path: Path) -> None:
    line = f"[rank1]: torch.distributed.DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 1] Work {WORK} timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).\n"
    verdict = judged(tmp_path, line)

    assert (verdict.code, verdict.seq, verdict.waiting) == ("SL399", 12, (1,))

# ruff: noqa: E501 - lines of logs are as long as they are
"""What watchdogs, torch's comparisons, crashes and torchrun say beside the timeout itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import WORLD, closing, dump_signal, status, watchdog
from test_no_false_all_clear import STEPS, judged


def old_status(number: int, work: int, enqueued: int, completed: int) -> str:
    """How far a rank had come (torch 2.4 and 2.5)."""
    return (
        f"[rank{number}]:[E515 18:36:47.343391940 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {number}] Exception (either an error or "
        f"timeout) detected by watchdog at work: {work}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.\n"
    )


BEHIND = {
    "beside the call": watchdog(0, 12)
    + dump_signal(0, "this local rank", 12, 11)
    + dump_signal(1, "another rank", 11, 11),
    "by counters alone": dump_signal(0, "this local rank", 12, 11) + dump_signal(1, "another rank", 11, 11),
    "in the newer format": status(0, 12, 12, 11) + dump_signal(1, "another rank", 11, 11),
    "in the older format": old_status(0, 12, 12, 11) + dump_signal(1, "another rank", 11, 11),
}


@pytest.mark.parametrize("name", BEHIND)
def test_who_has_done_all_and_begun_less_is_named_by_its_own_counters(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, WORLD.format(2) + BEHIND[name])

    assert (verdict.code, verdict.culprit_ranks, verdict.waiting) == ("SL301", (1,), (0,))
    assert "#12" in verdict.summary


@pytest.mark.parametrize(
    "text",
    [
        dump_signal(0, "this local rank", 14, 12) + dump_signal(1, "another rank", 11, 11),
        dump_signal(0, "this local rank", 12, 11) + dump_signal(1, "another rank", 12, 11),
        dump_signal(0, "this local rank", 12, 12) + dump_signal(1, "another rank", 11, 11),
    ],
    ids=["what it waits for is not the next one of the other", "both wait", "nobody waits"],
)
def test_counters_that_prove_nothing_name_nobody(tmp_path: Path, text: str) -> None:
    assert judged(tmp_path, WORLD.format(2) + text).culprit_ranks == ()


def test_members_that_wait_at_different_numbers_are_out_of_step(tmp_path: Path) -> None:
    text = watchdog(0, 122, "_REDUCE_SCATTER_BASE", 400) + watchdog(1, 126, "_ALLGATHER_BASE", 800)
    verdict = judged(tmp_path, WORLD.format(2) + text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL302", ())
    assert all(
        words in verdict.summary for words in ("_REDUCE_SCATTER_BASE #122", "_ALLGATHER_BASE #126", "out of step")
    )


def test_the_source_of_a_broadcast_may_be_ahead(tmp_path: Path) -> None:
    assert judged(tmp_path, WORLD.format(2) + watchdog(0, 122, "BROADCAST") + watchdog(1, 126)).code == "SL399"


def test_sizes_that_differ_in_a_coalesced_call_are_told(tmp_path: Path) -> None:
    verdict = judged(tmp_path, WORLD.format(2) + watchdog(0, 12, "COALESCED", 400) + watchdog(1, 12, "COALESCED", 800))

    assert verdict.code == "SL399"
    assert any("rank 0 400, rank 1 800" in reason for reason in verdict.because)


PRINT = "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(device=cuda))"


def test_half_of_a_comparison_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        f"[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: {PRINT}, but Rank 1 is runn",
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL411", ())
    assert "rank 0 brought ALLREDUCE [4]" in verdict.summary


@pytest.mark.parametrize("mark", ["", "[rank0]:"], ids=["without marks", "with marks"])
def test_the_stack_of_a_collective_says_where_a_rank_waited(tmp_path: Path, mark: str) -> None:
    stack = "".join(
        f"{mark}#{i} {frame}\n"
        for i, frame in enumerate(
            (
                "all_reduce from /x/site-packages/torch/distributed/distributed_c10d.py:2501",
                "step from /srv/train.py:41",
                "main from /srv/train.py:88",
            )
        )
    )
    text = (
        watchdog(0, 12)
        + f"[rank0]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:670] Stack trace of the failed collective: \n{stack}"
    )

    assert any(
        "rank 0 waited at /srv/train.py:41 in step" in reason
        for reason in judged(tmp_path, WORLD.format(3) + text).because
    )


FAULT = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\n{}\nExtension modules: numpy (total: 1)\n"


def test_the_stack_of_a_crash_is_shown(tmp_path: Path) -> None:
    stack = '  File "/srv/ext.py", line 12 in forward\n  File "/srv/train.py", line 41 in step\n'
    verdict = judged(tmp_path, STEPS + FAULT.format(stack))

    assert verdict.code == "SL405"
    assert any("forward (ext.py:12), step (train.py:41)" in reason for reason in verdict.because)


def test_a_crash_of_the_launcher_is_no_ranks(tmp_path: Path) -> None:
    stack = '  File "/x/site-packages/torch/distributed/elastic/rendezvous/api.py", line 82 in next_rendezvous\n  File "/x/site-packages/torch/distributed/run.py", line 792 in run\n'
    verdict = judged(tmp_path, FAULT.format(stack))

    assert (verdict.code, verdict.culprit_ranks) == ("SL601", ())
    assert "the launcher itself crashed" in verdict.summary


@pytest.mark.parametrize(
    ("code", "says"), [(-6, "SIGABRT, exit code -6"), (1, "exit code 1"), (-9, "SIGKILL"), (-11, "SIGSEGV")]
)
def test_the_local_rank_and_the_signal_of_an_end_are_told(tmp_path: Path, code: int, says: str) -> None:
    line = f"E0515 18:36:52.816000 3900 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: 3 (pid: 4711) of binary: /usr/bin/python3\n"
    verdict = judged(tmp_path, STEPS + closing(4000) + line)

    assert "local rank 3 " in verdict.summary
    assert says in verdict.summary

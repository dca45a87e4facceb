"""Lines with a word of trouble that mean none: messages of a start, and what ordinary progress refutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_no_false_all_clear import judged

STEPS = "".join(f"Epoch 0: {n}%|#    | {n}/14 [00:0{n}<00:04, 2.61it/s]\n" for n in range(1, 9))
BEGIN = "node-a rank: 0\nbuilding the model\n"


@pytest.mark.parametrize(
    "line",
    [
        "Installing SLURM signal hooks, handle signals.",
        "Registered the signal handlers.",
        "Signal processing: sigmoid of 3 significant bands",
        "Setting up signal handlers for SIGTERM and SIGUSR1",
    ],
)
def test_a_message_of_a_start_that_mentions_signals_is_no_trouble(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"{BEGIN}{line}\n{STEPS}").code == "SL498"
    assert "cannot tell what became" not in judged(tmp_path, f"{BEGIN}{line}\n").summary


@pytest.mark.parametrize(
    "line", ["caught a signal, leaving", "Received SIGTERM", "Failed to set the signal handlers", "got sigsegv twice"]
)
def test_a_signal_that_came_is_one(tmp_path: Path, line: str) -> None:
    assert "cannot tell what became" in judged(tmp_path, f"{BEGIN}{line}\n").summary


def test_a_doubtful_word_is_refuted_by_the_progress_behind_it(tmp_path: Path) -> None:
    line = "the dead neurons were not found\n"

    assert judged(tmp_path, f"{BEGIN}{line}{STEPS}").code == "SL498"
    assert "near its end" in judged(tmp_path, f"{BEGIN}{line}loading data\n").summary


def test_an_error_is_not_refuted_by_what_was_buffered(tmp_path: Path) -> None:
    """Steps that a process printed come out when it ends, behind what it wrote to stderr."""
    for line in ("Error: cannot read shard 7", "giving up on the data set", "storage: Input/output error"):
        assert judged(tmp_path, f"{BEGIN}{line}\n{STEPS}").code == "SL499", line


def test_steps_of_an_earlier_time_refute_nothing(tmp_path: Path) -> None:
    """They were buffered, and came out when the process ended."""
    steps = "".join(f"2026-01-04 10:00:0{n} step {n} loss 2.1\n" for n in range(8))

    assert judged(tmp_path, f"{steps}2026-01-04 10:05:00 the queue is stuck\n{steps}").code == "SL499"
    assert judged(tmp_path, f"2026-01-04 09:05:00 the queue is stuck\n{steps}").code == "SL498"


def test_what_many_lines_follow_is_not_near_the_end(tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"{BEGIN}the store was lost to us\n" + "loading another shard\n" * 20)

    assert "the log says `the store was lost to us`" in verdict.summary
    assert "near its end" not in verdict.summary


RESULT = "Training result: Result(\n  metrics={{'loss': 0.0114, 'epoch': 4.0}},\n  path='/runs/7',\n{})\n"
GONE = "(Worker pid=7) [ERROR] compiler subprocess raised [], the main process has disappeared!\n"


def test_a_result_is_an_end_and_helpers_complain_of_it(tmp_path: Path) -> None:
    verdict = judged(tmp_path, RESULT.format("") + GONE * 4)

    assert (verdict.code, verdict.kind) == ("SL498", "none")
    assert judged(tmp_path, GONE * 4 + RESULT.format("")).code == "SL499", "it did not follow from that end"
    assert judged(tmp_path, GONE * 4).code == "SL499"


def test_a_result_that_holds_an_error_is_none(tmp_path: Path) -> None:
    assert judged(tmp_path, RESULT.format("  error=WorkerGroupError('worker 3'),\n") + GONE).code != "SL498"
    assert judged(tmp_path, "Training result: Result(metrics={}, error=OutOfTime())\n" + GONE).code != "SL498"

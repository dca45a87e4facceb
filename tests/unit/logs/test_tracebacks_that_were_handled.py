# ruff: noqa: E501 - lines of logs are as long as they are
"""A traceback behind which its process made further steps was handled: it does not lead over what failed later."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, closing, traceback
from test_no_false_all_clear import judged

HANDLED = traceback("OSError: [Errno 5] shard 17 cannot be read", MAIN, ("/srv/data.py", 12, "load"))
FATAL = traceback("ValueError: bad sample 7", MAIN, ("/srv/train.py", 41, "step"))


def steps(first: int, count: int = 30) -> str:
    return "".join(f"step {n} loss {2.0 - n / 1000:.3f}\n" for n in range(first, first + count))


def marked(text: str, rank: int) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("more", [3, 30, 200])
def test_of_one_process_the_last_traceback_is_the_end(tmp_path: Path, more: int) -> None:
    verdict = judged(tmp_path, steps(0) + HANDLED + steps(30, more) + FATAL)

    assert "bad sample 7" in verdict.summary
    assert "shard 17" not in verdict.summary


def test_a_time_that_is_later_proves_it_of_many_processes_without_marks(tmp_path: Path) -> None:
    at, later = "2026-03-02T10:00:29.5000000Z ", "2026-03-02T10:09:00.0000000Z "
    text = "".join(f"{at}{line}\n" for line in (*steps(0).splitlines(), *HANDLED.splitlines()))
    text += "".join(f"{later}{line}\n" for line in (*steps(30).splitlines(), *FATAL.splitlines()))

    assert "bad sample 7" in judged(tmp_path, f"world_size=4\n{text}").summary


def test_what_one_of_many_prints_at_its_end_is_no_sign_that_it_went_on(tmp_path: Path) -> None:
    """Output is buffered: the last steps of a rank stand behind its own traceback."""
    text = "torchrun --nproc-per-node 4 train.py\nworld_size=4\n" + steps(0) + FATAL + steps(30, 20) + HANDLED

    verdict = judged(tmp_path, text + closing(11, 12))

    assert "bad sample 7" in verdict.summary + " ".join(verdict.because)


def test_a_rank_that_went_on_and_waited_in_vain_later_is_no_culprit(tmp_path: Path) -> None:
    watchdog = (
        "[rank0]:[E302 10:20:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=90, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds "
        "before timing out.\n"
    )
    text = marked(steps(0) + HANDLED + steps(30, 600), 0) + watchdog

    verdict = judged(tmp_path, text)

    assert verdict.kind == "hang"
    assert verdict.culprit_ranks == ()
    assert "shard 17" not in verdict.summary


def test_the_last_steps_of_a_rank_that_failed_do_not_free_it_where_it_hangs_at_its_end(tmp_path: Path) -> None:
    """Its own watchdog may tell of a timeout, behind all that it had buffered."""
    watchdog = "[rank0]:[E302 10:20:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=90, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
    verdict = judged(tmp_path, marked(steps(0) + FATAL + steps(30), 0) + watchdog)

    assert "bad sample 7" in verdict.summary

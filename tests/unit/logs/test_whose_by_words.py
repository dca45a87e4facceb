# ruff: noqa: E501 - lines of logs are as long as they are
"""Whose a failure is, where a line has no mark: its own words, the same error elsewhere, or the only one that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, STEP, child_failed, closing, rank, traceback

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.model import Verdict

STEPS = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(40))
ECC = "CUDA error: uncorrectable ECC error encountered"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU {0} has a total capacity of 79.15 GiB of which 1.00 MiB is free."


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "out.log").write_text(text)
    return diagnose(read([str(tmp_path / "out.log")]))


NAMED = {
    "a watchdog of an older torch": f"[E ProcessGroupNCCL.cpp:900] [Rank 5] NCCL watchdog thread terminated with exception: {ECC}\n",
    "a watchdog of a newer torch": f"[E P.cpp:1] [PG 0 (default_pg) Rank 5] Process group watchdog thread terminated with exception: {ECC}\n",
    "an assertion that begins with it": traceback(
        "AssertionError: Rank 5: found NaN in local grad norm. Device: 1, node: n1", MAIN
    ),
    "a report of an iteration": "ERROR:megatron.core:Unexpected result nan on rank 5 at iteration #3 (message='found NaN in local grad norm')\n",
    "a key": "rank=5 pid=7 ERROR loader: shard 12 is corrupt\n",
}


@pytest.mark.parametrize("case", NAMED)
def test_a_line_that_names_its_own_rank_is_of_that_rank(tmp_path: Path, case: str) -> None:
    verdict = judged(tmp_path, STEPS + NAMED[case])

    assert "rank 5" in verdict.summary.lower()
    assert "does not say which rank" not in verdict.summary


OF_OTHERS = [
    "rank 5: shape (3, 4) does not match (3, 5)",
    "Rank 5: no shard was written",
    "rank=5 has another vocabulary",
    "the shard of rank 5 is corrupt",
    "shapes differ on rank 5",
    "bad checkpoint from rank 5",
    "no parameters for rank 5",
]


@pytest.mark.parametrize("whole", [False, True], ids=["a line", "a traceback"])
@pytest.mark.parametrize("message", OF_OTHERS)
def test_a_rank_of_which_an_exception_speaks_is_not_who_raised_it(tmp_path: Path, message: str, whole: bool) -> None:
    error = f"ValueError: {message}"
    verdict = judged(tmp_path, STEPS + (traceback(error, MAIN, STEP) if whole else f"{error}\n") + closing(4001, 4002))

    assert verdict.culprit_ranks == ()
    assert message[:20] in verdict.summary
    assert not verdict.summary.lower().startswith("rank 5 raised")


@pytest.mark.parametrize("line", ["Rank 3: found NaN in the loss", "rank 3: ERROR the shard is corrupt"])
def test_a_rank_that_begins_a_line_has_written_it(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"{STEPS}{line}\n" + closing(4001, 4002)).culprit_ranks in ((), (3,))
    assert "rank 3" in judged(tmp_path, f"{STEPS}{line}\n").summary.lower()


def test_a_number_within_another_group_is_no_rank(tmp_path: Path) -> None:
    line = f"[E P.cpp:1] [PG ID 3 PG GUID 31 Rank 5] Process group watchdog thread terminated with exception: {ECC}\n"

    assert judged(tmp_path, STEPS + line).culprit_ranks == ()


def test_a_process_that_has_named_its_rank_has_it_in_all_its_lines(tmp_path: Path) -> None:
    mark = "(RayWorkerVllm pid=5304) "
    text = f"{mark}[Rank 7] starts\n{mark}[E P.cpp:1] [Rank 7] NCCL watchdog thread terminated with exception: {ECC}\n"
    text += f"{mark}ValueError: what comes of it\n"
    verdict = judged(tmp_path, text)

    assert verdict.culprit_ranks == (7,)


def test_the_same_error_in_a_line_that_names_its_rank_says_whose_a_traceback_is(tmp_path: Path) -> None:
    text = traceback(f"RuntimeError: {ECC}", MAIN)
    text += f"\n[E P.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: {ECC}\n"
    verdict = judged(tmp_path, STEPS + text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL428", (1,))


def test_all_ranks_that_met_the_same_error_are_named_also_those_of_which_the_end_is_left(tmp_path: Path) -> None:
    text = f"[rank1]: {OOM.format(1)}\n" + rank(0, traceback(OOM.format(0), MAIN, STEP))
    verdict = judged(tmp_path, STEPS + text)

    assert verdict.summary.startswith("ranks 0 and 1")


def test_a_rank_that_met_the_same_and_was_ended_for_it_has_not_caught_it(tmp_path: Path) -> None:
    error = "torch.AcceleratorError: CUDA error: invalid device ordinal"
    text = rank(2, traceback(error, MAIN)) + rank(1, traceback(error, MAIN)) + closing(4001) + child_failed((2, 1))
    verdict = judged(tmp_path, text)

    assert verdict.code == "SL425"
    assert verdict.summary.startswith("ranks 1 and 2")


def test_the_only_process_that_failed_by_itself_is_whose_an_exception_is(tmp_path: Path) -> None:
    end = "E0630 11:36:34.500000 19 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 22) of binary: /usr/bin/python\n"
    verdict = judged(tmp_path, traceback("ModuleNotFoundError: No module named 'adapters'", MAIN) + end)

    assert verdict.code == "SL409"
    assert verdict.summary.startswith("local rank 3 raised ModuleNotFoundError")


def test_a_task_that_slurm_saw_fail_alone_is_whose_an_exception_is(tmp_path: Path) -> None:
    text = "AttributeError: 'NoneType' object has no attribute 'all_reduce'\nsrun: error: n17: task 3: Exited with exit code 1\n"
    text += "slurmstepd: error: *** STEP 11.0 ON n16 CANCELLED AT 2031-02-01T10:00:00 ***\nsrun: error: n16: tasks 0-2: Terminated\n"
    verdict = judged(tmp_path, text)

    assert verdict.summary.startswith("task 3 on n17 raised AttributeError")


def test_nodes_that_do_not_meet_are_no_ranks_fault(tmp_path: Path) -> None:
    verdict = judged(tmp_path, rank(0, "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: late\n"))

    assert (verdict.code, verdict.culprit_ranks) == ("SL602", ())


def test_what_stands_behind_the_launchers_record_is_of_whoever_had_started_it(tmp_path: Path) -> None:
    after = traceback("OSError: [Errno 28] No space left on device", ("/opt/notebook/io.py", 3, "write"))
    verdict = judged(tmp_path, STEPS + child_failed((0, 1)) + after)

    assert verdict.culprit_ranks == ()


def test_who_had_started_torchrun_does_not_compete_with_what_failed_in_it(tmp_path: Path) -> None:
    after = traceback(
        "subprocess.CalledProcessError: Command '['torchrun', '--nnodes', '1', 'train.py']' returned non-zero exit status 1.",
        ("/srv/cli.py", 3, "main"),
    )
    verdict = judged(tmp_path, STEPS + child_failed((0, -11)) + after)

    assert (verdict.code, verdict.culprit_ranks) == ("SL405", (0,))
    assert not any("CalledProcessError" in line for line in verdict.because)


def test_a_line_of_nccl_names_its_process_and_its_gpu(tmp_path: Path) -> None:
    line = "n1:77:88 [1] misc/strongstream.cc:424 NCCL WARN Cuda failure 'unspecified launch failure'\nn1:77:88 [1] init.cc:2745 NCCL WARN commDestroySync: comm 0x3a0f7f50 rank 1 sync deviceStream error 1\n"
    verdict = judged(tmp_path, line)

    assert verdict.culprit_ranks == ()
    assert verdict.summary.startswith("process 77 on n1 (GPU 1, rank 1 of its communicator) got an error of NCCL")

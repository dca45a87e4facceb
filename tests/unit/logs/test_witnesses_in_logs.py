# ruff: noqa: E501 - lines of logs are as long as they are
"""Who speaks of another process is a witness; what a line names as its cause, or its limit, leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, rank, traceback
from test_no_false_all_clear import STEPS, judged

WITNESSES = {
    "others that did not come": "ValueError: TP rank 2 could finish the loading of the model, but there are other ranks that didn't finish",
    "a wait for others": "TimeoutError: waited 600 s for the other workers to load their shards",
    "not all came": "RuntimeError: not all ranks arrived at the barrier",
    "another one": "RuntimeError: another worker has failed, see its output",
}


@pytest.mark.parametrize("name", WITNESSES)
def test_who_speaks_of_others_is_not_to_blame(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, STEPS + rank(2, traceback(WITNESSES[name], MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL412", ())
    assert "rank 2 tells of others" in verdict.summary
    assert WITNESSES[name][:40] in verdict.because[0]


AWAITED = {
    "the coordinator of a barrier": "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
    "an answer": "RuntimeError: no response from rank 0 within 300 s",
    "one that is gone": "RuntimeError: worker 0 did not answer",
}


@pytest.mark.parametrize("name", AWAITED)
def test_the_one_that_was_awaited_is_where_to_look(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, STEPS + rank(2, traceback(AWAITED[name], MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL412", ())
    assert "rank 2 waited for rank 0" in verdict.summary
    assert "look at the log of rank 0 first" in verdict.remedy


def test_a_rank_that_hccl_let_wait_is_not_to_blame(tmp_path: Path) -> None:
    text = "RuntimeError: HCCL error in: ProcessGroupHCCL.cpp:64\nEI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."
    verdict = judged(tmp_path, STEPS + rank(2, traceback(text, MAIN)))

    assert (verdict.code, verdict.culprit_ranks) == ("SL412", ())


def test_a_rank_that_timed_out_in_a_monitored_barrier_waited(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, STEPS + traceback("RuntimeError: Rank 2 timed out in monitoredBarrier after 60000 ms.", MAIN)
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL412", ())
    assert "waited for rank 2" not in verdict.summary


def test_the_rank_whose_crash_a_launcher_tells_of_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + "ERROR:composer.cli.launcher:Rank 3 crashed with exit code -9.\n")

    assert (verdict.code, verdict.culprit_ranks) == ("SL403", (3,))


def test_a_broken_connection_is_not_first_because_it_was_written_first(tmp_path: Path) -> None:
    broken = rank(0, traceback("ConnectionResetError: [Errno 104] Connection reset by peer", MAIN))
    verdict = judged(tmp_path, STEPS + broken + rank(2, traceback("KeyError: 'ids'", MAIN)))

    assert 0 not in verdict.culprit_ranks


def test_the_agents_newer_words_of_a_signal_are_known(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + "Received Signals.SIGTERM death signal, shutting down workers\n")

    assert (verdict.code, "SIGTERM" in verdict.summary) == ("SL603", True)


OWN = [
    "RuntimeError: a GPU may be occupied by other processes",
    "ValueError: rank 2 has no data",
    "RuntimeError: failed to load the shard of rank 2",
    "KeyError: 'process'",
]


@pytest.mark.parametrize("message", OWN)
def test_who_speaks_of_itself_is_named(tmp_path: Path, message: str) -> None:
    assert judged(tmp_path, STEPS + rank(2, traceback(message, MAIN))).culprit_ranks == (2,)


def watchdog(number: int, seq: int, ms: int = 600000, ran: int = 600123, op: str = "ALLREDUCE") -> str:
    return f"[E ProcessGroupNCCL.cpp:458] [Rank {number}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, Timeout(ms)={ms}) ran for {ran} milliseconds before timing out.\n"


def test_numbers_of_groups_that_no_line_names_do_not_compare(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + watchdog(0, 900) + watchdog(0, 907) + watchdog(5, 411))

    assert (verdict.code, verdict.culprit_ranks) == ("SL399", ())


def test_a_wait_far_beyond_its_limit_is_told(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + watchdog(0, 900, 600000, 7200_000))

    assert any("2.0 h, against a limit of 10 min" in reason for reason in verdict.because)
    assert "ran for 7200000" in verdict.because[0]


def test_a_limit_that_no_collective_meets_is_the_finding(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + watchdog(0, 1, 5, 70))

    assert (verdict.code, verdict.culprit_ranks) == ("SL414", ())
    assert "after 70 ms, because the timeout of the group is set to 5 ms" in verdict.summary


def test_a_timeout_that_is_cut_off_names_its_rank(tmp_path: Path) -> None:
    cut = "[rank{0}]:[E515 18:36:47.34 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=COALESCED, NumelIn=18446744073709551615"
    text = (
        cut.format(1)
        + ", NumelOut=18446744073709551615, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
        + cut.format(0)
    )
    verdict = judged(tmp_path, STEPS + text)

    assert "ranks 0 and 1 timed out in COALESCED #7" in verdict.summary


def test_a_status_that_was_broken_into_two_lines_is_one(tmp_path: Path) -> None:
    text = "[rank3]:[E909 09:55:46.99 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 70, last enqueued\nNCCL work: 82, last completed NCCL work: 69.\n"
    verdict = judged(tmp_path, STEPS + text)

    assert verdict.code == "SL399"
    assert "rank 3 tells of a collective that timed out (#70)" in verdict.summary


def test_ranks_that_are_at_different_numbers_of_one_operation_are_told_apart(tmp_path: Path) -> None:
    text = "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=4OpType=BARRIER), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=3OpType=BARRIER).Collectives differ\n"
    verdict = judged(tmp_path, STEPS + text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL411", ())
    assert "rank 1 in #4, rank 2 in #3" in verdict.summary


KERNEL = {
    "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149": (
        "SL428",
        "Xid 149",
    ),
    "kernel: NVRM: Xid (PCI:0000:dc:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 05": ("SL499", "GPU"),
    "kernel: NVRM: Xid (PCI:0000:dc:00): 145, RLW_RXPIPE Fatal XC0 i0 Link 05": ("SL428", "NVLink"),
    "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001": (
        "SL499",
        "follows from an earlier error",
    ),
    "kernel: NVRM: Xid (PCI:0000:dc:00): 31, pid=18, name=python3, MMU Fault": (
        "SL427",
        "a program read or wrote a wrong address",
    ),
}


@pytest.mark.parametrize("line", KERNEL)
def test_an_error_of_the_driver_is_classed_by_its_cause(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, f"{line}\n")

    assert (verdict.code, verdict.culprit_ranks) == (KERNEL[line][0], ())
    assert KERNEL[line][1] in verdict.summary


@pytest.mark.parametrize("device", ["CUDA", "HIP", "NPU", "XPU"])
def test_memory_of_any_device_is_memory(tmp_path: Path, device: str) -> None:
    message = f"RuntimeError: {device} out of memory. Tried to allocate 9.50 GiB (X 1; 60.00 GiB total capacity; 2.00 GiB free)"

    assert judged(tmp_path, STEPS + rank(1, traceback(message, MAIN))).code == "SL420"


DIED = {
    "ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.": "process VllmWorker-3 died",
    "ERROR 11-08 11:01:29 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 4711 died, exit code: -15": "process VllmWorkerProcess (pid 4711) died",
    "[2031-01-01 10:00:00] Rank 1 scheduler is dead. Please check if there are relevant logs.": "died",
}


@pytest.mark.parametrize("line", DIED)
def test_the_notice_of_a_death_leads_over_what_follows_it(tmp_path: Path, line: str) -> None:
    text = f'DEBUG 11-08 11:00:10 [shm_broadcast.py:456] No available shared memory broadcast block found in 60 second.\n{line}\nERROR 11-08 11:01:30 [core.py:502] EngineCore encountered a fatal error.\nERROR 11-08 11:01:30 [core.py:502] Traceback (most recent call last):\nERROR 11-08 11:01:30 [core.py:502]   File "/x/vllm/v1/engine/core.py", line 4, in run\n'
    verdict = judged(tmp_path, text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert DIED[line] in verdict.summary
    assert line[-30:] in verdict.because[0]


def test_the_end_of_torch_elastics_record_is_read_without_its_beginning(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        "  rank      : 3 (local_rank: 1)\n  exitcode  : -11 (pid: 71)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 71\n=====\n",
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL405", (3,))


@pytest.mark.parametrize(
    "line",
    [
        "INFO:torch.distributed.elastic.agent.server.api:Local worker group finished (SUCCEEDED). Waiting 300 seconds for other agents to finish",
        "`Trainer.fit` stopped: `max_epochs=3` reached.",
        "{'train_runtime': 71.5, 'train_loss': 1.2}",
    ],
)
def test_last_words_of_jobs_that_ended_well_are_known(tmp_path: Path, line: str) -> None:
    assert judged(tmp_path, f"loading\n{line}\n").code == "SL498"


def test_a_library_that_nccl_does_without_is_no_alarm(tmp_path: Path) -> None:
    assert (
        judged(tmp_path, f"node1:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n{STEPS}").code
        == "SL498"
    )


def test_a_piece_of_torch_elastics_record_tells_of_a_failure(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        "  exitcode  : 1 (pid: 991)\n  error_file: <N/A>\n  traceback : To enable traceback see a page\n=====\n",
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert "a process ended with an error (exit code 1)" in verdict.summary


def test_what_a_driver_passes_on_is_not_its_own(tmp_path: Path) -> None:
    text = traceback("RuntimeError: Worker failed with error 'CUDA out of memory. Tried to allocate 2.00 GiB'", MAIN)
    verdict = judged(tmp_path, STEPS + rank(0, text))

    assert (verdict.code, verdict.culprit_ranks) == ("SL420", ())


def test_what_ray_repeats_is_of_several_processes(tmp_path: Path) -> None:
    text = "(RayWorker pid=7) ERROR 04-16 01:01:44 [worker_base.py:620] RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details) [repeated 6x across cluster]\n"
    verdict = judged(tmp_path, text)

    assert verdict.culprit_ranks == ()
    assert "pid=7" not in verdict.summary


def test_an_engine_whose_worker_failed_is_no_culprit(tmp_path: Path) -> None:
    engine = traceback("RuntimeError: Worker failed with error", MAIN)
    verdict = judged(tmp_path, "".join(f"(EngineCore_DP0 pid=77) {line}\n" for line in engine.splitlines()))

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert "another one failed" in verdict.summary


def test_the_time_limit_ended_a_job_that_had_outlived_a_word_of_its_shell(tmp_path: Path) -> None:
    shell = "CommandNotFoundError: the shell has not been set up for 'conda activate'.\n\n"
    bar = " 22%|## | 11/50 [1:57:05<6:54:42, 638.01s/it]"
    limit = "slurmstepd: error: *** JOB 42 ON node1 CANCELLED AT 2022-04-14T16:17:16 DUE TO TIME LIMIT ***\n"
    verdict = judged(tmp_path, shell + bar + limit)

    assert (verdict.code, verdict.host) == ("SL603", "node1")

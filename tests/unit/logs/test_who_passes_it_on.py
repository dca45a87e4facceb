# ruff: noqa: E501 - lines of logs are as long as they are
"""Processes that pass on that another one failed, attempts before the last one, and what stands before a cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, child_failed, rank, traceback, watchdog

from safelaunch.diagnosis.logs import diagnose
from safelaunch.evidence.logs import read
from safelaunch.model import Verdict

STEPS = "".join(f"step {i} loss {2.0 - i / 100:.3f}\n" for i in range(40))
HEAD = "Traceback (most recent call last):\n"


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "out.log").write_text(text)
    return diagnose(read([str(tmp_path / "out.log")]))


def test_the_fields_of_an_actor_stand_in_lines_of_their_own(tmp_path: Path) -> None:
    mark = "(Runner pid=13) "
    fields = "actor_id: 1bc8", "pid: 132182", "name: WorkerDict_0:1", "namespace: 31d1", "ip: 172.16.2.252"
    text = "".join(f"{mark}\t{field}\n" for field in fields)
    text += f"{mark}The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"
    verdict = judged(tmp_path, text)

    assert verdict.summary.startswith("actor WorkerDict_0:1 (pid 132182 on 172.16.2.252) died")
    assert verdict.pid == 132182


def test_a_death_that_a_hang_led_to_is_told_as_well(tmp_path: Path) -> None:
    text = (
        watchdog(0, 2)
        + "ERROR 11-08 11:01:29 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 11 died, exit code: -6\n"
    )
    verdict = judged(tmp_path, text)

    assert verdict.kind == "hang"
    assert any("exit code: -6" in line for line in verdict.because)


def test_what_was_logged_before_a_process_ended_is_quoted(tmp_path: Path) -> None:
    end = "E0630 11:36:34.500000 19 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 22) of binary: /usr/bin/python\n"
    verdict = judged(tmp_path, STEPS + "ERROR:root:the tokenizer is not there\n" + end)

    assert any("the tokenizer is not there" in line for line in verdict.because)


def test_a_messenger_is_quoted_where_it_names_nobody_and_advice_is_of_its_own_framework(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "[2031-01-01 10:00:00] SIGQUIT received. It usually means one child failed.\n")

    assert "one child failed" in verdict.summary
    assert "Ray" not in verdict.remedy


def test_an_engines_watchdog_before_what_it_led_to_is_a_hang(tmp_path: Path) -> None:
    text = "".join(f"[2031-01-01 10:00:00 TP{at}] Watchdog timeout (self.watchdog_timeout=300)\n" for at in (1, 0))
    verdict = judged(
        tmp_path,
        text
        + "[2031-01-01 10:00:05] Received sigquit from a child process. It usually means the child failed.\nKilled\n",
    )

    assert (verdict.code, verdict.kind, verdict.culprit_ranks) == ("SL399", "hang", ())
    assert verdict.summary.startswith("ranks 0 and 1 were stuck in a batch for 300 s")


def test_an_engine_that_waits_for_shared_memory_hangs_before_its_call_times_out(tmp_path: Path) -> None:
    text = (
        "(EngineCore pid=3) INFO 10-02 10:00:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.\n"
        * 3
    )
    verdict = judged(
        tmp_path,
        text
        + "(EngineCore pid=3) ERROR 10-02 10:05:00 [core.py:710] TimeoutError: RPC call to execute_model timed out.\n",
    )

    assert (verdict.code, verdict.kind) == ("SL399", "hang")
    assert "for 60 s" in verdict.summary


def test_an_attempt_that_shows_no_failure_leaves_the_word_to_the_one_before(tmp_path: Path) -> None:
    text = (
        "E0213 12:07:20.086000 8 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 87) of binary: /usr/bin/python\n"
        "I0213 12:07:20.086000 8 torch/distributed/elastic/agent/server/api.py:889] [default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
        + HEAD
        + '  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    )
    verdict = judged(tmp_path, text)

    assert verdict.summary.startswith("an earlier attempt failed: local rank 0 ended with an error (exit code 1)")
    assert any("started again" in line for line in verdict.because)
    assert verdict.culprit_ranks == ()


CUT = {
    "a warning of a process group": (
        "[rank4]:[E421 02:05:38.7 ProcessGroupX.cpp:143] the mesh is broken\n",
        "the mesh is broken",
    ),
    "scales that halve": (
        "".join(f"| WARNING: overflow detected, setting loss scale to: {2.0**-at}\n" for at in range(5)),
        "the loss scale has come to 0.0625",
    ),
}


@pytest.mark.parametrize("case", CUT)
def test_what_was_said_before_a_traceback_that_is_cut_off_stands_in_the_headline(tmp_path: Path, case: str) -> None:
    said, words = CUT[case]
    verdict = judged(tmp_path, STEPS + said + HEAD)

    assert verdict.code == "SL499"
    assert words in verdict.summary
    assert "cut off" in verdict.summary


ALARMS = {
    "docker: Error response from daemon: could not select device driver": "could not select device driver",
    "fatal: unable to access 'https://host/x.git/': Could not resolve host: host": "Could not resolve host",
    "ERROR:root:no sample is left": "no sample is left",
    "sbatch: error: Batch job submission failed: Requested node configuration is not available": "not available",
}


@pytest.mark.parametrize("line", ALARMS)
def test_an_alarm_is_told_in_its_own_words(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, "starting\n" + line + "\n")

    assert verdict.code == "SL499"
    assert ALARMS[line] in verdict.summary


OUTSIDE = {
    "DUE TO TIME LIMIT ": ("more time", "scancel"),
    "DUE TO PREEMPTION ": ("last checkpoint", "more time"),
    "": ("scancel", "more time"),
}


@pytest.mark.parametrize("why", OUTSIDE)
def test_advice_is_for_the_reason_that_is_told(tmp_path: Path, why: str) -> None:
    verdict = judged(
        tmp_path, STEPS + f"slurmstepd: error: *** JOB 77 ON n5 CANCELLED AT 2031-01-01T00:00:00 {why}***\n"
    )

    assert verdict.code == "SL603"
    assert OUTSIDE[why][0] in verdict.remedy
    assert OUTSIDE[why][1] not in verdict.remedy


def test_a_process_that_was_spawned_and_killed_is_named(tmp_path: Path) -> None:
    spawn = ("/opt/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", 282, "spawn")
    text = traceback(
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL", MAIN, spawn
    )
    verdict = judged(tmp_path, STEPS + text)

    assert verdict.code == "SL403"
    assert "rank 1 was killed by SIGKILL" in verdict.summary


def test_a_part_of_a_checkpoint_is_of_the_rank_that_its_head_names(tmp_path: Path) -> None:
    text = traceback(
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])", MAIN
    )
    text += (
        HEAD.replace(":\n", ": (RANK 3)\n")
        + '  File "/srv/load.py", line 163, in part\n    read()\nRuntimeError: Missing key in checkpoint state_dict: optimizer.state.x\n'
    )
    verdict = judged(tmp_path, rank(0, text))

    assert verdict.culprit_ranks == (3,)
    assert "Missing key" in verdict.summary


def test_several_ranks_were_killed(tmp_path: Path) -> None:
    summary = judged(tmp_path, STEPS + child_failed((8, -9), [(9, -9)])).summary

    assert summary.startswith("ranks 8 and 9")
    assert "were killed by SIGKILL" in summary


def test_the_rank_that_waits_for_clients_holds_the_store(tmp_path: Path) -> None:
    init = ("/srv/train.py", 4, "init_process_group")
    verdict = judged(
        tmp_path,
        traceback(
            "torch.distributed.DistStoreError: Timed out after 121 seconds waiting for clients. 1/2 clients joined.",
            init,
        ),
    )

    assert (verdict.code, verdict.culprit_ranks) == ("SL309", (1,))


DIED = (
    "2026-01-17 10:21:35,472\tWARNING worker.py:18 -- A worker died or was killed while executing a task by an "
    "unexpected system error. Worker IP address: 10.0.0.7 Worker PID: {} Worker exit type: SYSTEM_ERROR\n"
)


def test_the_last_words_of_a_process_that_died_are_those_with_its_pid(tmp_path: Path) -> None:
    mark = "\x1b[2m\x1b[36m(TrainWorker pid={}, ip=10.0.0.7)\x1b[0m "
    text = mark.format(4711) + "saving the last sample\n" + mark.format(9) + "loading\n" + DIED.format(4711)
    verdict = judged(tmp_path, text)

    assert verdict.pid == 4711
    assert "its last words are `saving the last sample`" in verdict.summary
    assert "not in the logs" not in verdict.summary
    assert "its own words are not in the logs" in judged(tmp_path, text.replace("PID: 4711", "PID: 12")).summary
    assert "its own words are not in the logs" in judged(tmp_path, text.replace("ip=10.0.0.7", "ip=10.0.0.8")).summary


def test_a_process_that_died_after_its_function_had_returned_says_so(tmp_path: Path) -> None:
    text = "(TrainWorker pid=4711, ip=10.0.0.7) 10:21:19 [INFO] Returned from the train function\n" + DIED.format(4711)

    assert "died after its function had returned" in judged(tmp_path, text).summary

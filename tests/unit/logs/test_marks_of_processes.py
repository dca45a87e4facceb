# ruff: noqa: E501 - lines of logs are as long as they are
"""Whose a line is, in the marks of vLLM, SGLang, Ray, torchrun's templates, Kaggle and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, STEP, marked, traceback
from test_no_false_all_clear import judged

FAILED = traceback("ValueError: the weights are odd", MAIN, STEP)
VLLM = "ERROR 05-15 18:36:47 [multiproc_executor.py:522] "
ENGINE = marked(
    "EngineCore failed to start.\n"
    + traceback("Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.", ("/v/core.py", 1, "run")),
    "(EngineCore_DP0 pid=300) ERROR 05-15 18:36:48 [core.py:708] ",
) + marked(
    traceback("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", ("/v/cli.py", 1, "main")),
    "(APIServer pid=1) ",
)  # fmt: skip


def steps(mark: str, *numbers: int) -> str:
    return "".join(f"{mark.format(i)}step {step} loss 2.0\n" for step in range(4) for i in numbers)


def sglang(names: str) -> str:
    """Only the first line of what a logger writes has its mark."""
    return f"[2025-05-15 18:36:47 {names}] Scheduler hit an exception: {FAILED}\n[2025-05-15 18:36:47] Received sigquit from a child process. It usually means the child failed.\n"


RANK_3 = {
    "vLLM with a rank": marked(FAILED, f"(VllmWorker rank=3 pid=406) {VLLM}"),
    "vLLM with tensor parallelism alone": marked(FAILED, f"(Worker_TP3 pid=406) {VLLM}") + ENGINE,
    "SGLang with tensor parallelism alone": sglang("TP3"),
    "SGLang with experts beside it": sglang("TP3 EP3"),
    "SGLang without times": sglang("TP3").replace("2025-05-15 18:36:47 ", "").replace("[2025-05-15 18:36:47] ", ""),
    "Lightning": marked(FAILED, "[rank: 3] "),
    "Composer": marked(FAILED, "rank3[4711][MainThread]: "),
    "mpirun": marked(FAILED, "[1,3]<stderr>:"),
    "mpiexec -prepend-rank": steps("[{}] ", 0, 1, 2, 3) + marked(FAILED, "[3] "),
    "its own words": steps("rank {}: ", 0, 1, 2, 3) + marked(FAILED, "rank 3: "),
    "srun --label": steps("{}: ", 0, 1, 2, 3) + marked(FAILED, "3: "),
    "Kaggle": "".join(f"704.7s\t{i}\t[rank3]: {line}\n" for i, line in enumerate(FAILED.splitlines())),
    "kubectl": marked(FAILED, "[pod/train-worker-3/pytorch] [rank3]: "),
    "docker compose": "".join(steps(f"worker-{i}-1  | ", i) for i in range(3))
    + marked(FAILED, "worker-2-1  | [rank3]: "),
}


@pytest.mark.parametrize("name", RANK_3)
def test_the_mark_says_whose_a_line_is(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path, RANK_3[name])

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", (3,)), verdict.summary


UNTOLD = {  # the mark says which process it is, and that is no rank of the job
    "vLLM with data parallelism": (marked(FAILED, f"(Worker_DP1_TP3_EP7 pid=406) {VLLM}") + ENGINE, "Worker_DP1_TP3_EP7 pid=406 raised"),
    "vLLM's older workers": (marked(FAILED, f"(VllmWorkerProcess pid=406) {VLLM}"), "VllmWorkerProcess pid=406 raised"),
    "SGLang with data parallelism": (sglang("DP0 TP3 EP3"), "DP0 TP3 EP3 raised"),
    "Ray": (marked(FAILED, "(RayTrainWorker pid=77, ip=10.0.0.9) "), "RayTrainWorker pid=77 on 10.0.0.9 raised"),
    "torchrun's template": (steps("node1:{}: ", 0, 1, 3) + marked(FAILED, "node1:3: "), "local rank 3 on node1 raised"),
    "torchrun's tee": (steps("[default{}]:", 0, 1) + marked(FAILED, "[default3]:"), "local rank 3 raised"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOLD)
def test_a_mark_that_is_no_rank_is_told_as_it_is(tmp_path: Path, name: str) -> None:
    text, says = UNTOLD[name]
    verdict = judged(tmp_path, text)

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", ())
    assert says in verdict.summary
    assert not any("no marks of ranks" in reason for reason in verdict.because)


@pytest.mark.parametrize(
    "line",
    [
        "node1:123:456 [1] NCCL INFO Channel 00",
        "train.py:12: UserWarning: odd",
        "[3] see the notes",
        "rank 3: is late, says rank 0",
    ],
)
def test_what_looks_like_a_mark_is_none_where_other_lines_have_none(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, "plain words\n" * 9 + f"{line}\n" + FAILED)

    assert verdict.culprit_ranks == ()
    assert "a process raised" in verdict.summary


DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\n"
    "\tactor_id: 2b1c7e2a01000000\n\tpid: 4711\n\tname: trainer_3\n\tnamespace: 7d1f\n\tip: 10.0.0.9\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
)
PASSED_ON = marked(traceback(DIED, MAIN), "(TaskRunner pid=99) ")


def test_an_actor_that_died_is_named_and_not_the_one_that_says_so(tmp_path: Path) -> None:
    verdict = judged(tmp_path, PASSED_ON)

    assert (verdict.code, verdict.culprit_ranks, verdict.pid, verdict.host) == ("SL499", (), 4711, "10.0.0.9")
    assert "actor Trainer (trainer_3 pid 4711 on 10.0.0.9) died" in verdict.summary
    assert any("SYSTEM_ERROR" in reason for reason in verdict.because)


def test_the_words_of_the_actor_itself_lead(tmp_path: Path) -> None:
    verdict = judged(tmp_path, marked(FAILED, "(Trainer pid=4711, ip=10.0.0.9) ") + PASSED_ON)

    assert verdict.code == "SL401"
    assert "Trainer pid=4711 on 10.0.0.9 raised ValueError: the weights are odd" in verdict.summary


def test_an_engine_that_says_that_a_worker_failed_is_not_the_one_that_failed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, ENGINE)

    assert (verdict.code, verdict.culprit_ranks) == ("SL499", ())
    assert "tells that another one failed" in verdict.summary


def test_the_watchdog_of_the_whole_job_says_its_rank_where_torchrun_marks_local_ranks(tmp_path: Path) -> None:
    text = (
        "[default1]:terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "[default1]:  what():  [PG ID 0 PG GUID 0(default_pg) Rank 9] Process group watchdog thread terminated with "
        "exception: CUDA error: an illegal memory access was encountered\n"
    )

    assert judged(tmp_path, text).culprit_ranks == (9,)


RELAYED = traceback(
    "ray.exceptions.RayTaskError(ValueError): ray::Trainer.fit() (pid=4711, ip=10.0.0.9, actor_id=2b1c)\n"
    '  File "/srv/worker.py", line 9, in fit\n    step()\nValueError: the weights are odd',
    MAIN,
)


def test_what_ray_passes_on_is_of_the_process_that_raised_it(tmp_path: Path) -> None:
    verdict = judged(tmp_path, marked(RELAYED, "[rank0]: "))

    assert (verdict.code, verdict.culprit_ranks) == ("SL401", ())
    assert "Trainer.fit pid=4711, ip=10.0.0.9 raised ValueError: the weights are odd" in verdict.summary


def test_what_ray_passes_on_is_the_same_failure_again(tmp_path: Path) -> None:
    verdict = judged(tmp_path, marked(FAILED, "(Trainer pid=4711, ip=10.0.0.9) ") + marked(RELAYED, "[rank0]: "))

    assert (verdict.culprit_ranks, verdict.confidence) == ((), "medium")
    assert "Trainer pid=4711 on 10.0.0.9 raised" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore_0 pid=20) INFO 05-15 18:36:47 [shm_broadcast.py:501] No available shared memory broadcast block found in 60 second.",
        "[2025-05-15 18:36:47 TP0] Watchdog timeout (self.watchdog_timeout=300)",
    ],
)
def test_an_engine_that_waits_for_a_worker_is_not_all_right(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, steps("", 0) + f"{line}\n" + steps("", 0) * 20)

    assert verdict.code == "SL499"
    assert "did not answer in time" in verdict.summary

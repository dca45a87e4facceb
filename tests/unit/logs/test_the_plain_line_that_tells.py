# ruff: noqa: E501 - lines of logs are as long as they are
"""A plain line that tells the cause leads over a traceback, an abort or a shutdown that follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, traceback
from test_no_false_all_clear import judged

STEPS = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(20))


def by(process: str, text: str, level: str = "") -> str:
    return "".join(f"({process}) {level}{line}\n" for line in text.splitlines())


ENGINE = "EngineCore_DP0 pid=77"
LEVEL = "ERROR 03-02 10:00:02 [core.py:1102] "
CANCELLED = by(ENGINE, traceback("RuntimeError: cancelled", ("/srv/engine/core.py", 93, "run")), LEVEL)
DEATH = by(
    ENGINE, "Worker proc VllmWorker-2 died unexpectedly, shutting down executor.", "ERROR 03-02 10:00:02 [x.py:23] "
)


def test_the_death_of_a_worker_leads_over_what_its_engine_raised_then(tmp_path: Path) -> None:
    verdict = judged(tmp_path, DEATH + CANCELLED)

    assert verdict.summary.startswith("process VllmWorker-2 died")
    assert "where it started" not in verdict.remedy


def test_what_an_engine_raised_before_a_death_is_not_explained_by_it(tmp_path: Path) -> None:
    raised = CANCELLED.replace("cancelled", "the block table is full")
    verdict = judged(tmp_path, raised + by(ENGINE, "\n", LEVEL) + DEATH)

    assert "block table is full" in verdict.summary
    assert "rank" not in verdict.summary, "an engine is no rank"
    assert "where it started" not in verdict.remedy


RANK = "[rank2]:[E302 10:00:44.810031290 ProcessGroupNCCL.cpp:2102] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated with exception: "
ABORTED = "Fatal Python error: Aborted\n"


@pytest.mark.parametrize("device", ["CUDA", "HIP"])
def test_an_abort_behind_a_watchdogs_exception_is_no_cause(tmp_path: Path, device: str) -> None:
    verdict = judged(tmp_path, f"{STEPS}{RANK}{device} error: an illegal memory access was encountered\n{ABORTED}")

    assert verdict.code == "SL427"
    assert verdict.culprit_ranks == (2,)


def test_a_watchdog_that_lost_a_remote_process_is_a_victim(tmp_path: Path) -> None:
    text = f"{STEPS}{RANK}NCCL error: remote process exited or there was a network error, NCCL version 2.27.5\nncclRemoteError: A call failed\n"
    verdict = judged(
        tmp_path, text + "terminate called after throwing an instance of 'c10::DistBackendError'\n" + ABORTED
    )

    assert verdict.code == "SL412"
    assert verdict.summary.startswith("rank 2 lost a peer")
    assert verdict.culprit_ranks == ()


def test_an_abort_alone_is_told(tmp_path: Path) -> None:
    assert judged(tmp_path, STEPS + ABORTED).code == "SL406"


LEFT = "W0302 10:00:37.169000 10902 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1314] The node 'n1_1_0' has failed to shutdown the rendezvous '77' due to an error of type RendezvousConnectionError.\n"


def test_a_rendezvous_that_is_lost_at_the_end_is_none_that_failed(tmp_path: Path) -> None:
    lost = traceback("RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.7]:37544", MAIN)
    verdict = judged(tmp_path, STEPS + "".join(f"[rank1]: {line}\n" for line in lost.splitlines()) + LEFT)

    assert verdict.code == "SL412"
    assert verdict.summary.startswith("rank 1 lost a peer")


WORKERS = by(
    "TrainController pid=20",
    "Started training worker group of size 2: \n- (ip=10.0.0.2, pid=31) world_rank=0, local_rank=0, node_rank=0\n- (ip=10.0.0.2, pid=44) world_rank=1, local_rank=1, node_rank=0",
)
OWN = traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/part_3.npy'", ("/srv/f.py", 11, "f"))
GROUP = "ray.train.WorkerGroupError: Training failed due to worker errors:\n[Rank 1 Error Snippet]:\n"
DRIVER = (
    traceback("ray.train.WorkerGroupError: Training failed due to worker errors:", MAIN)
    + "[Rank 1 Error Snippet]:\n"
    + OWN
)
BENIGN = by(
    "TrainController pid=20",
    "Failed to send a request for resources. If this only happens transiently, it's safe to ignore this error.\n"
    + traceback(
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.", ("/srv/ray/get.py", 3, "get")
    ),
)
QUERY = by(
    "PlacementGroupCleaner pid=26",
    "Failed to query Ray Train Controller actor state. State API may be temporarily unavailable. Continuing to monitor.\n"
    * 4,
)
RAY_STEPS = "".join(
    by(f"RayTrainWorker pid={pid}", f"rank {rank} step {n} loss {1 / (n + 1):.4f}")
    for n in range(4)
    for rank, pid in ((0, 31), (1, 44))
)


def test_the_worker_that_raised_leads_over_its_controller_and_its_driver(tmp_path: Path) -> None:
    passed_on = by("TrainController pid=20", GROUP)
    text = BENIGN + WORKERS + QUERY + RAY_STEPS + by("RayTrainWorker pid=44", OWN) + passed_on + DRIVER
    verdict = judged(
        tmp_path, text + by("TrainController pid=20", OWN.replace("'\n", "' [repeated 2x across cluster]\n"))
    )

    assert verdict.summary.startswith("rank 1 raised FileNotFoundError")
    assert verdict.culprit_ranks == (1,)
    assert not any("Failed to query" in line or "GetTimeoutError" in line for line in verdict.because)


def test_the_death_of_a_worker_of_ray_leads_over_what_its_driver_raised(tmp_path: Path) -> None:
    died = "The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n\tpid: 44\n\tip: 10.0.0.2\nThe actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: End of file.\n"
    verdict = judged(
        tmp_path,
        WORKERS
        + QUERY
        + RAY_STEPS
        + by("TrainController pid=20", died + GROUP)
        + traceback("ray.train.WorkerGroupError: Training failed due to worker errors:", MAIN),
    )

    assert verdict.summary.startswith("actor RayTrainWorker (pid 44 on 10.0.0.2) died")
    assert "\x1b" not in "".join(verdict.because)


def test_what_ray_writes_of_a_job_that_is_well_is_no_failure(tmp_path: Path) -> None:
    text = (
        QUERY
        + WORKERS
        + RAY_STEPS
        + by(
            "TrainController pid=20",
            "Graceful shutdown of backend failed. This is expected if one of the workers has crashed.",
        )
        + QUERY
    )

    assert judged(tmp_path, text).code == "SL498"


TIMED_OUT = (
    traceback("TimeoutError", ("/srv/shm.py", 5, "read"))
    + "\nThe above exception was the direct cause of the following exception:\n\n"
    + traceback("TimeoutError: RPC call to execute_model timed out.", ("/srv/engine/core.py", 93, "run"))
)


def test_an_engine_that_waited_in_vain_for_its_workers_tells_of_a_hang(tmp_path: Path) -> None:
    waited = by(
        ENGINE,
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging.",
        "INFO 03-02 10:00:02 [shm_broadcast.py:542] ",
    )
    verdict = judged(tmp_path, waited + by(ENGINE, TIMED_OUT, LEVEL))

    assert verdict.kind == "hang"


@pytest.mark.parametrize("word", ["Watchdog timeout", "Scheduler watchdog timeout"])
def test_the_watchdog_of_a_scheduler_tells_of_a_hang(tmp_path: Path, word: str) -> None:
    lines = "".join(
        f"[2026-03-02 10:03:4{n} TP{n}] {word} (self.watchdog_timeout=300, self.soft=False)\n" for n in range(4)
    )
    verdict = judged(
        tmp_path,
        lines + "[2026-03-02 10:03:50] Received sigquit from a child process. It usually means the child failed.\n",
    )

    assert verdict.kind == "hang"
    assert "300 s" in verdict.summary


def test_a_process_that_printed_its_error_twice_is_one(tmp_path: Path) -> None:
    raised = traceback("ValueError: the context does not fit", ("/srv/engine/core.py", 93, "run"))
    verdict = judged(
        tmp_path, by("EngineCore pid=7", raised, LEVEL) + by("EngineCore pid=7", "Process EngineCore:\n" + raised)
    )

    assert verdict.summary.startswith("EngineCore pid=7 raised ValueError: the context does not fit")

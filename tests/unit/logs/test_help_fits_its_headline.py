# ruff: noqa: E501 - lines of logs are as long as they are
"""What a line tells is not said to be missing, the object of a failure is named, and the help fits the headline."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, child_failed, rank, traceback
from test_no_false_all_clear import judged

from safelaunch.model import Verdict
from safelaunch.report.verdict import traceback_lines

STEPS = "".join(f"[rank 0] step {n} loss {2 - n / 100:.3f}\n" for n in range(20))
UNRESOLVED = "[W302 10:00:22.522243312 socket.cpp:764] [c10d] The IPv6 network addresses of ({name}, 29500) cannot be retrieved (gai error: {error}).\n"
UNREACHED = "[E302 10:00:37.688642262 socket.cpp:1028] [c10d] The client socket has timed out after 20000ms while trying to connect to (head-0.svc, 29500).\n"
LAUNCHER = traceback(
    "torch.distributed.DistNetworkError: The client socket has timed out after 20000ms while trying to connect to (head-0.svc, 29500).",
    ("/opt/py/bin/torchrun", 8, "<module>"), ("/opt/py/lib/python3.11/site-packages/torch/distributed/run.py", 1129, "run"),
)  # fmt: skip


def test_a_name_that_is_unknown_leads_over_the_time_that_ran_out_for_it(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        UNRESOLVED.format(name="head-0.svc", error="-2 - Name or service not known") * 4 + UNREACHED + LAUNCHER,
    )

    assert "the name head-0.svc could not be resolved (gai error: -2" in verdict.summary
    assert "getent hosts head-0.svc" in verdict.remedy
    assert "firewall" not in verdict.remedy


@pytest.mark.parametrize(
    "line",
    [UNRESOLVED.format(name="other.svc", error="-2 - Name or service not known"), UNRESOLVED.format(name="head-0.svc", error="-9 - Address family for hostname not supported")],
)  # fmt: skip
def test_another_name_or_another_family_of_addresses_is_no_reason(tmp_path: Path, line: str) -> None:
    assert "resolved" not in judged(tmp_path, line + UNREACHED + LAUNCHER).summary


def test_the_first_line_of_a_loss_that_is_no_number_is_quoted(tmp_path: Path) -> None:
    text = (
        "".join(f"iter {n} | loss {'nan' if n > 5 else 2**n} | lr 6.0\n" for n in range(40))
        + "Training finished. Saved model.\n"
    )
    verdict = judged(tmp_path, text)

    assert "out.log:7: " in verdict.because[0] or ":7: " in verdict.because[0]
    assert "runs" not in verdict.remedy


LOST = traceback(
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete",
    MAIN,
)
TOLD = "W0302 10:00:08.297000 15585 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 4001 closing signal SIGTERM\n"
WAITED = rank(0, LOST) + rank(2, LOST)


def test_the_only_rank_of_all_that_did_not_wait_is_where_to_look(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, STEPS + "[rank 1] loop is over, saving\n" + WAITED + TOLD + child_failed((0, 1), [(1, -15), (2, 1)])
    )

    assert "most likely for rank 1" in verdict.summary
    assert "loop is over, saving" in verdict.remedy
    assert verdict.culprit_ranks == ()


@pytest.mark.parametrize("others", [[(2, 1)], [(1, -15), (2, 1), (3, -15)]])
def test_where_several_may_be_meant_or_not_all_are_known_nobody_is(
    tmp_path: Path, others: list[tuple[int, int]]
) -> None:
    assert "most likely" not in judged(tmp_path, STEPS + WAITED + child_failed((0, 1), others)).summary


NO_GPU = traceback("RuntimeError: nccl2 requires at least one CUDA device", MAIN)


def test_no_gpu_is_told_with_the_ranks_of_torchruns_table(tmp_path: Path) -> None:
    verdict = judged(tmp_path, NO_GPU + NO_GPU + child_failed((0, 1), [(1, 1)]))

    assert verdict.code == "SL425"
    assert "ranks 0 and 1" in verdict.summary
    assert "does not say" not in verdict.summary


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.86 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.02 GiB is free."


def test_the_memory_of_a_server_is_not_that_of_a_training(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, rank(1, traceback(FULL, ("/opt/sglang/python/sglang/srt/managers/scheduler.py", 3, "run_batch")))
    )

    assert "--mem-fraction-static" in verdict.remedy
    assert "micro batch" not in verdict.remedy


def test_a_file_that_torch_load_cannot_read_is_what_to_look_at(tmp_path: Path) -> None:
    frames = MAIN, ("/opt/py/lib/python3.11/site-packages/torch/serialization.py", 1573, "load")
    verdict = judged(tmp_path, STEPS + rank(1, traceback("OSError: [Errno 22] Invalid argument", *frames)))

    assert "torch.load could not read the file" in verdict.remedy


def test_ranks_that_all_name_one_send_the_reader_there(tmp_path: Path) -> None:
    said = traceback("RuntimeError: EI0002: the Notify record has not come from remote rank [3]", MAIN)
    verdict = judged(tmp_path, "".join(rank(n, said) for n in range(3)))

    assert "no rank stands out" not in verdict.remedy


def test_a_traceback_that_is_shortened_begins_with_a_frame() -> None:
    marks = "".join(f'  File "/srv/f{n}.py", line {n}, in f\n    call()\n    ^^^^^^\n' for n in range(20))
    verdict = Verdict(
        code="SL401",
        slug="rank-failed",
        kind="crash",
        summary="it failed",
        traceback=f"Traceback (most recent call last):\n{marks}ValueError: no",
    )
    for room in range(8, 30):
        lines = [str(one).strip() for one in traceback_lines(verdict, room)]
        shown = next(n for n, one in enumerate(lines) if "in the bundle" in one)
        assert lines[shown + 1].startswith('File "')
        assert len(lines) <= room
        assert lines[-1] == "ValueError: no"


def test_a_traceback_that_is_no_ranks_is_not_given_to_one() -> None:
    verdict = Verdict(
        code="SL401",
        slug="rank-failed",
        kind="crash",
        summary="it failed",
        traceback="Traceback (most recent call last):\nValueError: no",
    )

    assert "rank" not in str(traceback_lines(verdict, 30)[0])


def test_the_task_that_ray_ended_for_memory_is_named(tmp_path: Path) -> None:
    chosen = "(raylet) Selected to kill: (Task: job ID=01, lease ID=02, task name=tokenize, required resources={CPU: 1}, pid=763, actual memory used=2.66GB, worker ID=03)\n(raylet) (global lru) bytes evicted: 0]\n"
    told = "(raylet) 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 18, IP: 10.0.0.2) over the last time period.\n"
    verdict = judged(tmp_path, chosen + told)

    assert verdict.code == "SL404"
    assert "tokenize, pid 763, which held 2.66GB" in verdict.summary
    assert not any("global lru" in line for line in verdict.because)


def test_a_loader_worker_that_was_killed_is_not_told_as_memory_for_sure(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, rank(1, traceback("RuntimeError: DataLoader worker (pid 449) is killed by signal: Killed. ", MAIN))
    )

    assert verdict.code == "SL429"
    assert "most often" in verdict.remedy


def test_a_cache_that_does_not_fit_keeps_the_help_of_its_engine(tmp_path: Path) -> None:
    raised = traceback(
        "ValueError: No available memory for the cache blocks.", ("/opt/vllm/v1/engine/core.py", 988, "run")
    )
    verdict = judged(tmp_path, "".join(f"(EngineCore pid=7) {line}\n" for line in raised.splitlines()))

    assert "--max-model-len" in verdict.remedy

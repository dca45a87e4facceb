# ruff: noqa: E501 - lines of logs are as long as they are
"""What came after an error is weighed: a retry, a restart, requests that were served, the last step."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_pieces import MAIN, traceback
from test_no_false_all_clear import judged

PUSH = "2026-03-02 10:00:07,101 WARNING uploader: push of metrics failed (attempt 1/3), retrying\n" + traceback(
    "TimeoutError: read timed out", MAIN, ("/srv/push.py", 9, "push")
)


def step(second: int, number: int, of: int = 40) -> str:
    return f"2026-03-02 10:00:{second:02d} [rank 0] step {number}/{of} loss {2 - number / 100:.3f}\n"


def done(count: str) -> str:
    return f"2026-03-02 10:00:50,101 INFO trainer: training finished, total steps 40, restarts used 0, {count}\n"


STEPS = "".join(step(10 + n, n) for n in range(30))


@pytest.mark.parametrize("count", ["failed=0", "failures: 0", "errors=0"])
def test_a_count_of_no_failures_is_the_end_of_a_job_that_is_well(tmp_path: Path, count: str) -> None:
    verdict = judged(tmp_path, step(1, 0) + PUSH + PUSH + STEPS + done(count))

    assert verdict.code == "SL498"


@pytest.mark.parametrize("count", ["failed=1", "errors: 12", "failures=0.5"])
def test_a_count_of_failures_is_none(tmp_path: Path, count: str) -> None:
    verdict = judged(tmp_path, step(1, 0) + PUSH + PUSH + STEPS + done(count))

    assert verdict.code != "SL498"


def attempt(second: int, last: int) -> str:
    return "".join(step(second + n, 4 * n) for n in range(last))


NOTICED = "E0302 10:00:12.858000 98 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 208) of binary: /usr/bin/python3\n"
FAILED = "".join(
    f"[rank1]: {line}\n"
    for line in traceback("OSError: [Errno 5] shard 7 cannot be read", MAIN, ("/srv/d.py", 2, "get")).splitlines()
)


def test_ranks_that_torch_elastic_has_started_again_and_that_came_to_their_last_step(tmp_path: Path) -> None:
    verdict = judged(tmp_path, attempt(1, 3) + FAILED + NOTICED + attempt(20, 10) + step(40, 39))

    assert verdict.code == "SL498"
    assert any("was started again" in line and "shard 7" in line for line in verdict.because)


def test_ranks_that_were_started_again_and_whose_steps_stop_early_are_not_all_right(tmp_path: Path) -> None:
    verdict = judged(tmp_path, attempt(1, 3) + FAILED + NOTICED + attempt(20, 6))

    assert verdict.code != "SL498"
    assert "shard 7" in verdict.summary + " ".join(verdict.because)


def test_steps_that_are_written_at_the_end_of_a_rank_are_no_restart(tmp_path: Path) -> None:
    buffered = "".join(f"2026-03-02 10:00:12 [rank 0] step {n}/40 loss 1.0\n" for n in range(12, 40))
    verdict = judged(tmp_path, attempt(1, 3) + FAILED + NOTICED + buffered)

    assert verdict.code != "SL498"


WAITED = "(EngineCore_DP0 pid=21) INFO 03-02 10:00:02 [shm_broadcast.py:542] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work.\n"
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
REFUSED = "(APIServer pid=1) ERROR 03-02 10:07:31 [serving_chat.py:301] Error in preprocessing prompt inputs: the request has 40113 input tokens, and the context has 32768.\n"


def served(count: int) -> str:
    return "".join(
        f'(APIServer pid=1) INFO 03-02 10:{n + 8:02d}:10 [loggers.py:248] Engine 000: Avg prompt throughput: 8{n}8.0 tokens/s, Avg generation throughput: {300 + n}.6 tokens/s, Running: 13 reqs, Waiting: 0 reqs\n(APIServer pid=1) INFO:     10.0.5.2:5120{n} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        for n in range(count)
    )


def test_a_server_that_started_and_answered_requests_has_not_hung_before(tmp_path: Path) -> None:
    assert judged(tmp_path, WAITED + READY + served(3) + REFUSED + served(8)).code == "SL498"


def test_the_load_of_a_server_is_not_its_pace(tmp_path: Path) -> None:
    idle = served(8).replace("prompt throughput: 828.0", "prompt throughput: 8.0")

    assert judged(tmp_path, READY + idle + served(3)).code == "SL498"


@pytest.mark.parametrize(
    "text", [READY + served(8) + WAITED, READY + served(8) + WAITED + served(2), WAITED + served(8)]
)
def test_a_server_that_waits_and_answers_no_more_is_not_all_right(tmp_path: Path, text: str) -> None:
    verdict = judged(tmp_path, text)

    assert verdict.code != "SL498"
    assert "broadcast block" in verdict.summary + " ".join(verdict.because)

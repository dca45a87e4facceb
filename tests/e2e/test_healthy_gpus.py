"""Habits of GPU programs in which nothing is wrong, on fake GPUs beside a busy core: nobody is told of, or ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus
from harness import FAULTS, busy
from test_healthy import nothing_was_wrong

pytestmark = [pytest.mark.rig, pytest.mark.slow, pytest.mark.timeout(300)]

HEALTHY = FAULTS / "gpu" / "healthy.py"
RUNS = int(os.environ.get("SAFELAUNCH_HEALTHY_RUNS", "1"))
IN_CI = {"runs_ahead", "halos"}
KINDS = (
    "runs_ahead", "long_kernels", "one_long_kernel", "compiles", "first_communicators", "evaluates", "generates",
    "checkpoints", "loads", "overlaps", "side_streams", "stages", "halos", "accumulates", "ends_later",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def busy_core() -> Iterator[None]:
    with busy(1):
        yield


def cases() -> list[object]:
    return [pytest.param(kind, marks=[pytest.mark.long] * (kind not in IN_CI)) for kind in KINDS]


@pytest.mark.parametrize("backend", NCCL)
@pytest.mark.parametrize("kind", cases())
@pytest.mark.parametrize("_number", range(RUNS))
def test_a_habit_is_no_hang(kind: str, backend: str, _number: int, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    options = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 4)
    environ = fake_gpus.environment(backend=backend)
    ended = fake_gpus.run(*options, HEALTHY, kind, cwd=tmp_path, environ=environ, timeout=240)

    print(ended.err)  # what was told meanwhile; shown with `-rP`
    nothing_was_wrong(ended)

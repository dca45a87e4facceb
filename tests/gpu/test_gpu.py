"""On a machine with a GPU: real NVML, NCCL between real ranks, and the example unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import REPOSITORY, launch

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


def test_the_full_check_passes_with_nccl(tmp_path: Path) -> None:
    ended = launch("check", "--full", "--json", "--nproc-per-node", "gpu", cwd=tmp_path, timeout=200)

    report = json.loads(ended.out)
    assert ended.code == 0, ended.out
    probe = next(finding for finding in report["findings"] if finding["code"] == "SL111")
    assert probe["severity"] == "ok"
    assert "nccl" in probe["summary"].lower()


def test_the_example_trains_on_every_gpu(tmp_path: Path) -> None:
    ended = launch(
        "--nproc-per-node", "gpu", REPOSITORY / "examples/train_ddp.py", "--steps", 20, cwd=tmp_path, timeout=200
    )

    assert ended.code == 0, ended.err


def test_a_crash_under_nccl_names_the_rank(tmp_path: Path) -> None:
    ended = launch(
        "--nproc-per-node",
        "gpu",
        REPOSITORY / "examples/faulty.py",
        "--fault",
        "exception@10:last",
        cwd=tmp_path,
        timeout=200,
    )

    assert ended.code == 1
    assert ended.verdict["code"] == "SL401"

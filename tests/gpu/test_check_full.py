"""On a machine with a GPU: the whole of `check --full`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from harness import launch

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


@pytest.mark.timeout(300)
def test_the_whole_check_on_real_gpus(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ended = launch("check", "--full", "--json", "--nproc-per-node", "gpu", cwd=tmp_path, timeout=280)

    report = json.loads(ended.out)
    found: dict[str, dict[str, Any]] = {finding["code"]: finding for finding in report["findings"]}
    assert not [finding for finding in report["findings"] if finding["severity"] == "error"], ended.out
    assert ended.code == 0
    for code in (*(f"SL15{digit}" for digit in range(8)), "SL111"):
        # A warning is a judgement, too: a single node may well be throttled. One GPU has no bus to measure.
        expected = ("skipped",) if code == "SL156" and torch.cuda.device_count() == 1 else ("ok", "warning")
        assert found[code]["severity"] in expected, found[code]
    assert re.search(r"GPUs? computed what was asked", found["SL150"]["summary"])
    assert "TFLOP/s" in found["SL151"]["summary"]
    assert "the same product" in found["SL152"]["summary"]
    assert "GB/s" in found["SL153"]["summary"]
    assert report["elapsed_s"] < 60
    print(ended.out)


@pytest.mark.timeout(200)
def test_a_gpu_that_computes_wrongly_is_found(tmp_path: Path) -> None:
    ended = launch(
        *("check", "--json", "--only", "silent-corruption", "--nproc-per-node", "gpu"),
        cwd=tmp_path,
        timeout=180,
        SAFELAUNCH_PROBE_FAULT="flip-once@0",
    )

    (finding,) = json.loads(ended.out)["findings"]
    assert finding["severity"] == "error"
    assert re.match(r"GPU \d+ computed different results from the same numbers", finding["summary"])
    assert "GPU-" in finding["where"]

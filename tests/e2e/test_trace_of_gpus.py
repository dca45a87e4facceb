"""`safelaunch trace` with NCCL on fake GPUs, whose driver is none for CUPTI: hosts are recorded, and why no kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus
from harness import FAULTS, SAFELAUNCH, environment, wait_for_lines
from test_trace import events, steps

pytestmark = [pytest.mark.rig, pytest.mark.timeout(180)]


@pytest.mark.parametrize("backend", NCCL)
def test_the_hosts_are_recorded_where_kernels_cannot_be(backend: str, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    environ = fake_gpus.environment(gpus=2, backend=backend)
    options = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 2)
    process = fake_gpus.start(*options, FAULTS / "gpu" / "traced.py", cwd=tmp_path, environ=environ)
    wait_for_lines(process, "ready", 2)

    done = subprocess.run(
        [*SAFELAUNCH, "trace"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=90, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "no kernels of ranks 0-1: " in done.stdout
    assert {len(each) for each in steps(events(tmp_path)).values()} == {3}
    (tmp_path / "end").touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err

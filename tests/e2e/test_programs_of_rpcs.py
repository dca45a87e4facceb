"""Programs that use torch.distributed.rpc and no process group."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import FAULTS, launch

SCRIPT = FAULTS / "remote_calls.py"


def test_a_program_of_rpcs_runs_as_under_torchrun(tmp_path: Path) -> None:
    ended = launch("--preflight", "off", "--nproc-per-node", 2, SCRIPT, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert "safelaunch:" not in ended.err


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_calls_that_wait_for_one_another_are_told(tmp_path: Path) -> None:
    options = ("--preflight", "off", "--nproc-per-node", 2, "--hang-abort-after", "25s")
    ended = launch(*options, SCRIPT, "circle", cwd=tmp_path, timeout=200)

    assert ended.code == 124, ended.err
    assert "error[SL317]: ranks 0 and 1 wait for answers of RPCs in a circle" in ended.err
    assert "in score " in ended.err

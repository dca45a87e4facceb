"""A rank that has failed, and whose process goes on: told with its traceback, ended where it does no work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_gpus import NCCL, FakeGpus
from harness import FAULTS, launch, newest_run, start, survivors

LIVES_ON = FAULTS / "lives_on.py"
WITHIN_S = 20.0  # ten on a machine of one's own


@pytest.mark.parametrize(
    "how",
    [
        "thread",
        "atexit",
        "stubborn",
        pytest.param("pool", marks=pytest.mark.long),
        pytest.param("destructor", marks=pytest.mark.long),
        "hook",
    ],
)
def test_a_process_that_does_no_work_is_ended(how: str, tmp_path: Path) -> None:
    ended = launch("--preflight", "off", "--nproc-per-node", 2, LIVES_ON, how, cwd=tmp_path)

    assert ended.code == 1, ended.err
    verdict = ended.verdict
    assert (verdict["code"], verdict["culprit_ranks"]) == ("SL401", [1])
    assert "shard 17 is truncated" in verdict["traceback"]
    assert any("went on after its exception" in line for line in verdict["because"])
    assert verdict["detected_after_s"] < verdict["concluded_after_s"] < WITHIN_S
    assert "SL301" not in ended.err
    assert "uploader" in ended.err or how not in ("thread", "stubborn", "hook")
    assert survivors(ended.run_dir, within_s=5) == []


@pytest.mark.rig
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("backend", NCCL)
@pytest.mark.parametrize("how", ["destroy", "item"])
def test_a_wait_for_a_gpu_that_spins_is_no_work(how: str, backend: str, fake_gpus: FakeGpus, tmp_path: Path) -> None:
    environ = fake_gpus.environment(gpus=2, backend=backend, FAKE_GPU_SPIN="1")
    options = ("-m", "safelaunch", "--preflight", "off", "--nproc-per-node", 2)
    ended = fake_gpus.run(*options, LIVES_ON, how, "nccl", cwd=tmp_path, environ=environ)

    assert ended.code == 1, ended.err
    verdict = ended.verdict
    assert (verdict["code"], verdict["culprit_ranks"]) == ("SL401", [1])
    assert any("went on after its exception: it waits for its peers or its GPU" in line for line in verdict["because"])
    assert verdict["concluded_after_s"] < WITHIN_S


def test_a_restart_follows_as_after_any_exception(tmp_path: Path) -> None:
    options = ("--preflight", "off", "--max-restarts", 1, "--nproc-per-node", 2)
    ended = launch(*options, LIVES_ON, "thread", cwd=tmp_path)

    assert ended.code == 1
    assert "restarting: attempt 1 of 1" in ended.err
    assert [verdict["code"] for verdict in ended.read("result.json")["verdicts"]] == ["SL401", "SL401"]


def test_an_upload_is_told_of_and_waited_for(tmp_path: Path) -> None:
    process = start("--preflight", "off", "--nproc-per-node", 2, LIVES_ON, "uploads", cwd=tmp_path)
    assert process.stderr is not None
    told = next(line for line in process.stderr if "its process goes on" in line)
    (tmp_path / "enough").touch()
    _, err = process.communicate(timeout=60)

    assert "SL401: rank 1 raised ValueError: shard 17 is truncated" in told
    assert "waited for as long as it does" in told
    assert (tmp_path / "uploaded").exists()
    assert process.returncode == 1
    run = newest_run(tmp_path)
    assert run is not None
    verdict = json.loads((run / "incident-0/verdict.json").read_text())
    assert (verdict["code"], verdict["culprit_ranks"]) == ("SL401", [1]), err


def test_report_ends_nothing(tmp_path: Path) -> None:
    options = ("--preflight", "off", "--on-hang", "report", "--nproc-per-node", 2)
    process = start(*options, LIVES_ON, "thread", cwd=tmp_path)
    assert process.stderr is not None
    told = next(line for line in process.stderr if "its process goes on" in line)
    process.terminate()
    _, err = process.communicate(timeout=60)

    assert told.rstrip().endswith("watching on")
    assert process.returncode == 143, err

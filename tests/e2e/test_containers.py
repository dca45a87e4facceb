"""Entrypoints as the first process of a container, with the variables of Beaker and of Kubernetes."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import container
import pytest

pytestmark = [
    pytest.mark.rig,
    pytest.mark.timeout(150),
    pytest.mark.skipif(bool(container.why_not()), reason="no overlay"),
]

SAFELAUNCH = (sys.executable, "-m", "safelaunch", "--preflight", "off")
BEAKER = {
    "BEAKER_JOB_ID": "01JOB", "BEAKER_JOB_KIND": "batch", "BEAKER_WORKLOAD_ID": "01WORK", "BEAKER_REPLICA_COUNT": "1",
    "BEAKER_REPLICA_RANK": "0", "BEAKER_ASSIGNED_GPU_COUNT": "2", "BEAKER_NODE_HOSTNAME": "gpu-12.cluster",
    "BEAKER_RESULT_DATASET_ID": "01RESULT",
}  # fmt: skip
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "NODE_NAME": "node-b"}
PET = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "2", "JOB_COMPLETION_INDEX": "0"}
SCRIPT = """
import os, signal, sys, time

rank, wants = int(os.environ["RANK"]), os.environ.get("WANTS", "")
if wants == "raise" and rank == 1:
    raise ValueError("a bad sample")
if wants == "save":
    def save(*_):
        open(f"saved-{rank}", "w").close()
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    open(f"ready-{rank}", "w").close()
    time.sleep(1000)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(SCRIPT)
    return tmp_path / "work"


def started(work: Path, *flags: object, **environ: str) -> container.Container:
    state = work.parent / "state"
    return container.Container(state, *SAFELAUNCH, *flags, "train.py", cwd=work, environ=environ)


def test_beaker_results_lie_where_beaker_keeps_them(work: Path) -> None:
    made = started(work, **BEAKER)

    code, said = made.ended()

    assert code == 0, said
    result = json.loads((made.results / "01JOB" / "result.json").read_text())
    assert (result["exit_code"], len(result["attempts"][0]["workers"])) == (0, 2)
    assert not (work / "safelaunch_runs").exists()


def test_a_preempted_task_saves_and_ends_as_interrupted(work: Path) -> None:
    made = started(work, **BEAKER, WANTS="save")
    for rank in range(2):
        made.wait_for(work / f"ready-{rank}")

    made.signal(signal.SIGTERM)
    code, said = made.ended()

    assert code == 143, said
    assert (work / "saved-0").exists()
    assert (work / "saved-1").exists()
    assert json.loads((made.results / "01JOB" / "result.json").read_text())["interrupted"] == signal.SIGTERM


def test_a_signal_before_there_are_ranks_ends_it(work: Path) -> None:
    """The kernel drops what PID 1 has no handler for, so one that comes too early would be lost for ever."""
    made = started(work, **BEAKER, WANTS="save")
    made.wait_for(made.results / "01JOB")

    made.signal(signal.SIGTERM)

    assert made.ended()[0] == 143


def test_a_pod_says_in_its_message_why_it_failed(work: Path) -> None:
    made = started(work, "--run-dir", work / "runs", **POD, **PET, WANTS="raise")

    code, said = made.ended()

    assert code == 1, said
    assert "error[SL401]: rank 1 raised ValueError: a bad sample" in made.message.read_text()
    assert "exit 1" in made.message.read_text()
    (run,) = (work / "runs").iterdir()
    assert (run / "incident-0" / "verdict.json").exists()


def test_a_pod_on_a_node_of_the_list_is_refused_in_the_operators_own_code(work: Path) -> None:
    (work / "bad").write_text("node-b  2026-11-20  SL428: GPU 3 failed\n")
    (work / "ours.toml").write_text(
        '[launch]\nexit_codes = "signal"\n[nodes]\nbad = "bad"\n[preflight]\nmode = "auto"\n'
    )
    flags = ("--preflight", "auto", "--profile", "./ours.toml")

    made = started(work, *flags, **POD, **PET)
    code, said = made.ended()

    assert code == 138, said
    assert "error[SL141]: node-b is on the list of bad nodes" in made.message.read_text()
    assert "GPU 3 failed" in said


def test_a_start_that_cannot_work_is_told_to_the_pod_as_well(work: Path) -> None:
    old = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456"}

    made = started(work, **POD, **old)
    code, _ = made.ended()

    assert code == 2
    assert "error[SL009]: the pod says WORLD_SIZE=2 and no PET_NNODES" in made.message.read_text()

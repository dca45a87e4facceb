"""What each scheduler's variables say, recorded from its own starts or after its own documentation."""

from __future__ import annotations

import pytest

from safelaunch.model import Allocation, SafelaunchError
from safelaunch.schedulers import allocation

# As srun of Slurm 22.05 sets them for `srun -N2 --gpus-per-node=4`.
STEP = {
    "SLURM_JOB_ID": "812",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[9-10]",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURMD_NODENAME": "gpu10",
}
BATCH = {"SLURM_JOB_ID": "812", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
BEAKER = {
    "BEAKER_JOB_ID": "01J",
    "BEAKER_WORKLOAD_ID": "01W",
    "BEAKER_REPLICA_RANK": "1",
    "BEAKER_REPLICA_COUNT": "2",
    "BEAKER_LEADER_REPLICA_HOSTNAME": "holmes-cs-1.reviz",
    "BEAKER_ASSIGNED_GPU_COUNT": "8",
}
SKYPILOT = {
    "SKYPILOT_TASK_ID": "sky-2026-11-25-1",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5",
    "SKYPILOT_NUM_GPUS_PER_NODE": "8",
}
GROUP = {"LWS_LEADER_ADDRESS": "train-0.train.ns", "LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "2"}


def found(environ: dict[str, str]) -> Allocation:
    given = allocation(environ)
    assert given is not None
    return given


def shape(given: Allocation) -> tuple[object, ...]:
    values = (given.nodes, given.node_rank, given.leader, given.gpus)
    return (given.scheduler, given.job, *(None if one is None else one.value for one in values))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (STEP, ("Slurm", "812.0", 2, 1, "gpu9", 4)),
        (BATCH, ("Slurm", "812", None, None, None, None)),
        (BEAKER, ("Beaker", "01W", 2, 1, "holmes-cs-1.reviz", 8)),
        (SKYPILOT, ("SkyPilot", "sky-2026-11-25-1", 2, 1, "10.0.0.4", 8)),
        (GROUP, ("LeaderWorkerSet", "train-0.train.ns", 3, 2, "train-0.train.ns", None)),
        ({"JOB_COMPLETION_INDEX": "1"}, ("indexed Job", "", None, 1, None, None)),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_the_place_of_a_node_in_its_job(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    assert shape(found(environ)) == expected


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("0", 1), ("2,3", 2), ("0,1,2,3,4,5", 4), ("", 0), ("-1", 0), ("GPU-8f2c,MIG-1", 2), ("0,-1,1", 1)],
)
def test_a_rank_needs_a_gpu_that_it_can_see(visible: str, gpus: int) -> None:
    given = found(STEP | {"CUDA_VISIBLE_DEVICES": visible})

    assert given.gpus is not None
    assert given.gpus.value == gpus


@pytest.mark.parametrize("number", ["5000000", "-1", "four", "99999999999999999999"])
def test_a_number_that_counts_no_gpus_is_none(number: str) -> None:
    assert found(STEP | {"SLURM_GPUS_ON_NODE": number}).gpus is None


def test_a_laptop_has_no_scheduler() -> None:
    assert allocation({"PATH": "/bin", "RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "pod-0"}) is None


def test_each_attempt_of_a_job_has_a_name_of_its_own() -> None:
    task = {"SLURM_ARRAY_JOB_ID": "800", "SLURM_ARRAY_TASK_ID": "7"}

    names = [found(STEP | more).job for more in ({}, task, {"SLURM_RESTART_COUNT": "2"}, {"SLURM_STEP_ID": "1"})]

    assert names == ["812.0", "800_7.0", "812.0-r2", "812.1"]


@pytest.mark.parametrize("step", [str(0xFFFFFFFA), str(0xFFFFFFFB), "", "many"])
def test_the_batch_script_and_the_shell_of_salloc_are_no_step_of_srun(step: str) -> None:
    assert found(STEP | {"SLURM_STEP_ID": step, "SLURM_JOB_NUM_NODES": "1"}).nodes is None


def test_the_nearest_to_the_process_speaks() -> None:
    assert found(STEP | SKYPILOT).scheduler == "SkyPilot"
    assert found(STEP | BEAKER).scheduler == "Beaker"
    assert found(STEP | {"JOB_COMPLETION_INDEX": "0"}).scheduler == "Slurm"


@pytest.mark.parametrize(
    ("environ", "summary", "remedy"),
    [
        (BATCH | {"SLURM_JOB_NUM_NODES": "4"}, "4 nodes", "srun --ntasks-per-node=1 safelaunch"),
        (STEP | {"SLURM_STEP_NUM_TASKS": "8"}, "8 times on 2 nodes", "srun --ntasks-per-node=1 safelaunch"),
        ({**BEAKER, "BEAKER_LEADER_REPLICA_HOSTNAME": ""}, "no leader", "leaderSelection: true"),
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "4 times on this node", "ppr:1:node"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "2 nodes", "--rdzv-endpoint HOST:PORT"),
        (STEP | {"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, "2 times on this node", "ppr:1:node"),
    ],
)
def test_a_start_that_cannot_become_one_job_is_refused_with_the_line_to_write(
    environ: dict[str, str], summary: str, remedy: str
) -> None:
    with pytest.raises(SafelaunchError) as refused:
        allocation(environ)

    told = refused.value.diagnostic
    assert told.code == "SL009"
    assert summary in told.summary
    assert remedy in told.remedy

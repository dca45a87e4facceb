"""Slurm: srun(1), "OUTPUT ENVIRONMENT VARIABLES", and sbatch(1)."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers.host_list import spelled_out
from safelaunch.schedulers.variables import gpus, misstart, number, value

# Steps that Slurm makes itself have numbers from here on: of the batch script, of an interactive shell, of the
# processes that were adopted (SLURM_BATCH_SCRIPT and others, slurm/slurm.h).
OWN_STEPS = 0xFFFFFFF0


def slurm(environ: Mapping[str, str]) -> Allocation | None:
    """The nodes of a step, which srun has started; outside of one, the node of a job that has no other."""
    if not environ.get("SLURM_JOB_ID"):
        return None
    step = number(environ, "SLURM_STEP_ID")
    if step is None or step >= OWN_STEPS:
        return _without_srun(environ)
    nodes, tasks = number(environ, "SLURM_STEP_NUM_NODES"), number(environ, "SLURM_STEP_NUM_TASKS")
    if nodes is not None and tasks is not None and tasks > nodes:
        raise misstart(
            f"srun starts safelaunch {tasks} times on {nodes} {'nodes' if nodes > 1 else 'node'}, and each would start "
            "all ranks of its node",
            "write `srun --ntasks-per-node=1 safelaunch …`, with the node's GPUs and CPUs for that one task "
            "(`--gpus-per-node`, `--cpus-per-task`)",
            f"SLURM_STEP_NUM_TASKS={tasks}, SLURM_STEP_NUM_NODES={nodes}",
            of_all=True,
        )
    hosts = spelled_out(environ.get("SLURM_STEP_NODELIST", ""))
    return Allocation(
        "Slurm",
        _job(environ, step),
        value(environ, "SLURM_STEP_NUM_NODES"),
        value(environ, "SLURM_NODEID"),
        Value(hosts[0], Origin("scheduler", "SLURM_STEP_NODELIST")) if hosts else None,
        gpus(environ, "SLURM_GPUS_ON_NODE"),
        hosts,
    )


def step_of_nodes(environ: Mapping[str, str], nodes: int) -> str:
    """The name of the step whose nodes are those of the job, each with one task; "" where there is no such step."""
    sizes = (number(environ, "SLURM_STEP_NUM_NODES"), number(environ, "SLURM_STEP_NUM_TASKS"))
    step = number(environ, "SLURM_STEP_ID")
    is_job = bool(environ.get("SLURM_JOB_ID")) and step is not None and step < OWN_STEPS and sizes == (nodes, nodes)
    return _job(environ, step) if is_job else ""


def _without_srun(environ: Mapping[str, str]) -> Allocation:
    """A batch script, or the shell of salloc."""
    nodes = number(environ, "SLURM_JOB_NUM_NODES") or 1
    if nodes > 1:
        raise misstart(
            f"Slurm has allocated {nodes} nodes, and safelaunch was started on one of them only",
            "write `srun --ntasks-per-node=1 safelaunch …`; `--standalone` for a job of this node alone",
            f"SLURM_JOB_NUM_NODES={nodes}, and no SLURM_STEP_ID of srun",
        )
    own_gpus = gpus(environ, "SLURM_GPUS_ON_NODE")
    return Allocation("Slurm", _job(environ, None), gpus=own_gpus)


def _job(environ: Mapping[str, str], step: int | None) -> str:
    """`123_4.0` with `-r2` in its second restart: an array's task is a job, and a requeued job keeps its number."""
    job = environ["SLURM_JOB_ID"]
    if environ.get("SLURM_ARRAY_JOB_ID") and environ.get("SLURM_ARRAY_TASK_ID"):
        job = f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    restart = number(environ, "SLURM_RESTART_COUNT") or 0
    return f"{job}{'' if step is None else f'.{step}'}{f'-r{restart}' if restart else ''}"

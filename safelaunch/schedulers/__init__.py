"""What schedulers say of a job, from the environment alone: which nodes it has, and which of them this one is.

A detector is a function of the environment that gives an `Allocation`, or None where its scheduler did not start this
process. It reads no file and asks no controller: containers have neither, and a thousand nodes would ask at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from safelaunch.model import Allocation

# A variable without which a detector has nothing to say, its module, and the function there: most launches load none of
# them. The nearest to the process comes first: what runs in a pod may have variables of the Slurm below it, and
# SkyPilot starts its tasks by ssh, in Slurm jobs and pods alike.
DETECTORS = (
    ("BEAKER_JOB_ID", "beaker", "beaker"),
    ("SKYPILOT_NUM_NODES", "skypilot", "skypilot"),
    ("OMPI_COMM_WORLD_SIZE", "mpi", "mpi"),
    ("PMI_SIZE", "mpi", "mpi"),
    ("LWS_LEADER_ADDRESS", "kubernetes", "leader_worker_set"),
    ("RAY_RAYLET_PID", "ray", "ray"),
    ("SLURM_JOB_ID", "slurm", "slurm"),
    ("JOB_COMPLETION_INDEX", "kubernetes", "indexed_job"),
    ("WORLD_SIZE", "kubernetes", "pytorch_job"),
)


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """What the scheduler gives that started this process; None where there is none.

    Args:
        environ: of safelaunch.

    Raises:
        SafelaunchError: SL009, where it was started in a way that cannot become one job.
    """
    for variable, module, function in DETECTORS:
        if environ.get(variable):
            detect = getattr(import_module(f"{__name__}.{module}"), function)
            found: Allocation | None = detect(environ)
            if found is not None:
                return found
    return None

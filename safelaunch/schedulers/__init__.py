"""What schedulers say of a job, from the environment alone: which nodes it has, and which of them this one is.

A detector is a function of the environment that gives an `Allocation`, or None where its scheduler did not start this
process. It reads no file and asks no controller: containers have neither, and a thousand nodes would ask at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from safelaunch.model import Allocation
from safelaunch.schedulers.beaker import beaker
from safelaunch.schedulers.kubernetes import indexed_job, leader_worker_set
from safelaunch.schedulers.mpi import mpi
from safelaunch.schedulers.skypilot import skypilot
from safelaunch.schedulers.slurm import slurm

# The nearest to the process comes first: what runs in a pod may have variables of the Slurm below it, and SkyPilot
# starts its tasks by ssh, in Slurm jobs and pods alike.
DETECTORS: tuple[Callable[[Mapping[str, str]], Allocation | None], ...] = (
    beaker,
    skypilot,
    mpi,
    leader_worker_set,
    slurm,
    indexed_job,
)


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """What the scheduler gives that started this process; None where there is none.

    Args:
        environ: of safelaunch.

    Raises:
        SafelaunchError: SL009, where it was started in a way that cannot become one job.
    """
    return next((found for detect in DETECTORS if (found := detect(environ)) is not None), None)

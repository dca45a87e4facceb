"""Kubernetes without an operator that speaks torchrun's own PET_<OPTION>, as Kubeflow's do.

RANK and WORLD_SIZE of a pod (PyTorchJob) count pods, and are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers.variables import value


def leader_worker_set(environ: Mapping[str, str]) -> Allocation | None:
    """The pods of one group of a LeaderWorkerSet (lws.sigs.k8s.io, "Labels, annotations and environment variables")."""
    leader = environ.get("LWS_LEADER_ADDRESS")
    nodes = value(environ, "LWS_GROUP_SIZE")
    if not leader or nodes is None:
        return None
    return Allocation(
        "LeaderWorkerSet",
        leader,  # it names the set and the group
        nodes,
        value(environ, "LWS_WORKER_INDEX"),
        Value(leader, Origin("scheduler", "LWS_LEADER_ADDRESS")),
    )


def indexed_job(environ: Mapping[str, str]) -> Allocation | None:
    """A pod of an indexed Job, also of a JobSet: it has its number, and nothing says how many there are."""
    rank = value(environ, "JOB_COMPLETION_INDEX")
    return None if rank is None else Allocation("indexed Job", node_rank=rank)

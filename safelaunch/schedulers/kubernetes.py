"""Kubernetes without an operator that speaks torchrun's own PET_<OPTION>, as Kubeflow's do.

RANK and WORLD_SIZE of a pod (PyTorchJob) count pods, or ranks, by the operator's version: they are taken for neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers.variables import misstart, number, value


def pytorch_job(environ: Mapping[str, str]) -> None:
    """A pod of a PyTorchJob whose operator does not speak PET_<OPTION>: torchrun would train once in each of them."""
    size = number(environ, "WORLD_SIZE") or 1
    if size == 1 or not environ.get("KUBERNETES_SERVICE_HOST") or not environ.get("MASTER_ADDR"):
        return
    if number(environ, "RANK") is None or any(name.startswith("PET_") for name in environ):
        return
    raise misstart(
        f"the pod says WORLD_SIZE={size} and no PET_NNODES: each pod would be a job of its own",
        "set nprocPerNode in the PyTorchJob, so that its operator sets PET_<OPTION>; or write `--nnodes PODS "
        "--node-rank $RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT`; `--standalone` for a job a pod",
        f"RANK={environ['RANK']}, MASTER_ADDR={environ['MASTER_ADDR']}",
    )


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

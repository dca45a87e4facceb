"""Beaker: tasks with `replicas` and `leaderSelection` (beaker-docs, "Distributed training")."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers.variables import gpus, misstart, value


def beaker(environ: Mapping[str, str]) -> Allocation | None:
    """The replicas of a task, which are one job where Beaker has chosen a leader among them."""
    if not environ.get("BEAKER_JOB_ID"):
        return None
    own_gpus = gpus(environ, "BEAKER_ASSIGNED_GPU_COUNT")
    nodes = value(environ, "BEAKER_REPLICA_COUNT")
    if nodes is None or nodes.value == 1:
        return Allocation("Beaker", environ["BEAKER_JOB_ID"], gpus=own_gpus)
    leader = environ.get("BEAKER_LEADER_REPLICA_HOSTNAME")
    if not leader:
        raise misstart(
            f"Beaker runs {nodes.value} replicas of this task, and has chosen no leader: they cannot find each other",
            "set `leaderSelection: true` and `hostNetworking: true` in the task; `--standalone` for a job each",
            f"BEAKER_REPLICA_COUNT={nodes.value}, and no BEAKER_LEADER_REPLICA_HOSTNAME",
        )
    return Allocation(
        "Beaker",
        # Each replica is a job of its own; what they share is the workload.
        environ.get("BEAKER_WORKLOAD_ID", ""),
        nodes,
        value(environ, "BEAKER_REPLICA_RANK"),
        Value(leader, Origin("scheduler", "BEAKER_LEADER_REPLICA_HOSTNAME")),
        own_gpus,
    )

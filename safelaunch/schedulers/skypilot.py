"""SkyPilot: "Distributed Jobs on Many VMs", environment variables of a task."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import Allocation, Origin, Value
from safelaunch.schedulers.variables import gpus, value


def skypilot(environ: Mapping[str, str]) -> Allocation | None:
    """The nodes of a task; SkyPilot runs its commands once on each of them."""
    nodes = value(environ, "SKYPILOT_NUM_NODES")
    if nodes is None:
        return None
    hosts = tuple(environ.get("SKYPILOT_NODE_IPS", "").split())
    return Allocation(
        "SkyPilot",
        environ.get("SKYPILOT_TASK_ID", ""),
        nodes,
        value(environ, "SKYPILOT_NODE_RANK"),
        Value(hosts[0], Origin("scheduler", "SKYPILOT_NODE_IPS")) if hosts else None,
        gpus(environ, "SKYPILOT_NUM_GPUS_PER_NODE"),
        hosts,
    )

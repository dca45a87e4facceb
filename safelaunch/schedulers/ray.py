"""Ray, whose workers are ranks already."""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.schedulers.variables import misstart


def ray(environ: Mapping[str, str]) -> None:
    """A worker of Ray Train has its rank; what Ray starts otherwise (`ray job submit`) is one process on one node."""
    rank = next((name for name in ("LOCAL_RANK", "RANK") if environ.get(name)), "")
    if not rank:
        return
    raise misstart(
        f"Ray has started safelaunch as one of its workers ({rank}={environ[rank]}), which are ranks themselves",
        "start safelaunch once on each node, with no Ray around it; Ray Train starts the training function without a "
        "launcher",
        "RAY_RAYLET_PID is set",
    )

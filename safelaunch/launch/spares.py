"""Spare nodes, as far as a launch decides about them before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safelaunch.codes import EXIT_USAGE
from safelaunch.model import SafelaunchError, Settings

BACKENDS = frozenset(("c10d", "etcd-v2"))  # torch's dynamic rendezvous: others keep nobody beyond the nodes of the job


def check(settings: Settings) -> None:
    """Refuse spare nodes where the rendezvous keeps none.

    Raises:
        SafelaunchError: the job has one node, or another rendezvous.
    """
    if not settings["spare_nodes"]:
        return
    if not settings.several_nodes:
        raise SafelaunchError(
            "SL001",
            "--spare-nodes is for a job of several nodes, and --nnodes says 1",
            "say with --nnodes how many nodes the job has, without the spares",
            exit_code=EXIT_USAGE,
        )
    if settings["rdzv_backend"] not in BACKENDS:
        raise SafelaunchError(
            "SL001",
            f"--spare-nodes: --rdzv-backend {settings['rdzv_backend']} numbers the nodes, and keeps no spare ones",
            "use --rdzv-backend c10d with --rdzv-endpoint, and leave --node-rank out",
            exit_code=EXIT_USAGE,
        )


def without_restarts(settings: Settings) -> str:
    """What is to be said where a spare can take nobody's place; empty where it can."""
    if not settings["spare_nodes"] or settings["max_restarts"]:
        return ""
    return "--spare-nodes without --max-restarts: when a node is lost the job ends, and no spare takes its place"


def others_can_go_on(torchrun: Mapping[str, Any], spare_nodes: int) -> bool:
    """Whether a job may go on without one of its nodes: a spare may take its place, or there may be fewer.

    Args:
        torchrun: the options of torchrun, by their names.
        spare_nodes: how many may wait.
    """
    fewest, _, most = str(torchrun.get("nnodes")).rpartition(":")
    elastic = fewest.isdecimal() and most.isdecimal() and int(fewest) < int(most)
    return torchrun.get("rdzv_backend") in BACKENDS and (spare_nodes > 0 or elastic)

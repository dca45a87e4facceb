"""Checks of a node before a launch, one file per group; the runner gives each its deadline."""

from __future__ import annotations

from safelaunch.preflight.active.collective import collective
from safelaunch.preflight.check import Check
from safelaunch.preflight.gpu.count import count
from safelaunch.preflight.gpu.driver import driver
from safelaunch.preflight.gpu.occupied import occupied
from safelaunch.preflight.network.names import names
from safelaunch.preflight.network.port import port
from safelaunch.preflight.node.leftovers import earlier_runs
from safelaunch.preflight.node.limits import disk, memory, open_files, shared_memory

CHECKS: tuple[Check, ...] = (
    Check("SL108", "gpu-driver", "gpu", driver, late="error"),
    Check("SL107", "gpu-count", "gpu", count),
    Check("SL109", "gpu-busy", "gpu", occupied),
    Check("SL110", "leftover-run", "processes", earlier_runs),
    Check("SL102", "port-in-use", "network", port),
    Check("SL103", "name-resolution", "network", names, deadline_s=40.0),
    Check("SL101", "nofile", "limits", open_files),
    Check("SL104", "shm", "limits", shared_memory),
    Check("SL105", "disk", "limits", disk),
    Check("SL106", "memory-limit", "limits", memory),
    Check("SL111", "collective", "collective", collective, full_only=True, deadline_s=140.0),
)

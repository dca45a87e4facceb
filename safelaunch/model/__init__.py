"""The frozen dataclasses that flow from the command line to the verdict.

Nothing here does I/O and nothing here imports more than the standard library, so that every stage, a worker
process and an offline `diagnose` can share it.

Names come from the modules of this package when they are first asked for (PEP 562): a dataclass takes half a
millisecond to make, and a command that lints a profile has no use for those of a diagnosis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safelaunch.model.devices import Changed, Place, RankDevice, StreamMark, StreamProgress
    from safelaunch.model.diagnostic import (
        SCHEMA_VERSION,
        Confidence,
        Diagnostic,
        Finding,
        Location,
        PreflightReport,
        SafelaunchError,
        Severity,
        Verdict,
        VerdictKind,
    )
    from safelaunch.model.evidence import (
        FORK_SERVER,
        SPARE,
        AgentEnd,
        CallState,
        Case,
        Child,
        Collective,
        Evidence,
        ExitCall,
        Gap,
        GroupProgress,
        Incident,
        LoaderPass,
        Phase,
        ProcessGroup,
        PyError,
        RankFacts,
        Stack,
    )
    from safelaunch.model.gpus import GpuState, NetworkPort, Tenant
    from safelaunch.model.kernel import Endpoint, Kernel, Process, ThreadCall
    from safelaunch.model.plan import (
        RUN_PATH,
        Allocation,
        Job,
        LaunchMode,
        LaunchPlan,
        Log,
        Origin,
        Settings,
        Value,
        WarmStart,
    )
    from safelaunch.model.processes import ColdStart, Exit, Preempted, WorkerGroup, WorkerProcess
    from safelaunch.model.rendezvous import Rendezvous
    from safelaunch.model.source import Bound, Condition, SourceLine, WayOut
    from safelaunch.model.surroundings import Memory, OpenFiles, Port, Reducer, Share, Space, Surroundings
    from safelaunch.model.topology import Device, Topology

__all__ = [
    "AgentEnd",
    "Allocation",
    "Bound",
    "CallState",
    "Case",
    "Changed",
    "Child",
    "ColdStart",
    "Collective",
    "Condition",
    "Confidence",
    "Device",
    "Diagnostic",
    "Endpoint",
    "Evidence",
    "Exit",
    "ExitCall",
    "FORK_SERVER",
    "SPARE",
    "Finding",
    "Gap",
    "GpuState",
    "GroupProgress",
    "Incident",
    "Job",
    "Kernel",
    "LaunchMode",
    "LaunchPlan",
    "Log",
    "LoaderPass",
    "Location",
    "Memory",
    "NetworkPort",
    "OpenFiles",
    "Origin",
    "Phase",
    "Place",
    "Port",
    "Preempted",
    "PreflightReport",
    "Process",
    "ProcessGroup",
    "PyError",
    "RUN_PATH",
    "RankDevice",
    "RankFacts",
    "Reducer",
    "Rendezvous",
    "SCHEMA_VERSION",
    "SafelaunchError",
    "Settings",
    "Severity",
    "Share",
    "SourceLine",
    "WayOut",
    "Space",
    "Stack",
    "StreamMark",
    "StreamProgress",
    "Surroundings",
    "Tenant",
    "ThreadCall",
    "Topology",
    "Value",
    "Verdict",
    "VerdictKind",
    "WarmStart",
    "WorkerGroup",
    "WorkerProcess",
]

# Those that most have a use for come first.
MODULES = (
    "diagnostic",
    "plan",
    "processes",
    "topology",
    "devices",
    "kernel",
    "source",
    "evidence",
    "gpus",
    "surroundings",
    "rendezvous",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in MODULES:
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

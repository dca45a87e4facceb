"""The frozen dataclasses that flow from the command line to the verdict.

Nothing here does I/O and nothing here imports more than the standard library, so that every stage, a worker
process and an offline `diagnose` can share it.
"""

from __future__ import annotations

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
    AgentEnd,
    Case,
    Child,
    Collective,
    Evidence,
    Exit,
    ExitCall,
    Incident,
    Kernel,
    Phase,
    ProcessGroup,
    PyError,
    RankFacts,
    SourceLine,
    Stack,
    WorkerGroup,
    WorkerProcess,
)
from safelaunch.model.plan import (
    Job,
    LaunchMode,
    LaunchPlan,
    Origin,
    Settings,
    Value,
)
from safelaunch.model.topology import Device, Topology

__all__ = [
    "AgentEnd",
    "Case",
    "Child",
    "Collective",
    "Confidence",
    "Device",
    "Diagnostic",
    "Evidence",
    "Exit",
    "ExitCall",
    "Finding",
    "Incident",
    "Job",
    "Kernel",
    "LaunchMode",
    "LaunchPlan",
    "Location",
    "Origin",
    "Phase",
    "PreflightReport",
    "ProcessGroup",
    "PyError",
    "RankFacts",
    "SCHEMA_VERSION",
    "SafelaunchError",
    "Settings",
    "Severity",
    "SourceLine",
    "Stack",
    "Topology",
    "Value",
    "Verdict",
    "VerdictKind",
    "WorkerGroup",
    "WorkerProcess",
]

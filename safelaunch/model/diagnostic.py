"""What is said of a node or a run: findings, verdicts, errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safelaunch.model.topology import Topology

SCHEMA_VERSION = 1

Severity = Literal["ok", "note", "warning", "error", "unchecked", "skipped"]
VerdictKind = Literal["hang", "crash", "slow", "preflight", "infra", "none"]  # none: nothing is wrong
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """What findings, verdicts and errors share, so that one renderer serves them all."""

    code: str
    summary: str
    because: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding(Diagnostic):
    """One result of a check. `unchecked` (could not look, `because` says why) is never a pass, and neither is `skipped`
    (there is nothing to look at: no GPU in the job, hardware without the feature; `summary` says what is missing).

    `where` names what is at fault in full, such as a GPU with its UUID and PCI address, or a node.
    """

    severity: Severity
    check: str = ""
    where: str = ""


@dataclass(frozen=True)
class PreflightReport:
    """All findings of one preflight of one node."""

    findings: tuple[Finding, ...]
    host: str
    elapsed_s: float
    full: bool = False
    topology: Topology | None = None

    @property
    def refused(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict(Diagnostic):
    """Who is to blame for an incident, how sure we are, and what to do.

    `culprit_ranks` may be empty: "no rank to blame" and "cannot tell" are told apart by `code`. Times are
    seconds from the death, or from the last progress. `conclusive` says of a hang that no patience can end it,
    `waiting` which ranks it holds up. `nodes` says of how many nodes' ranks it is the verdict.
    """

    slug: str
    kind: VerdictKind
    culprit_ranks: tuple[int, ...] = ()
    host: str = ""
    pid: int | None = None
    location: Location | None = None
    operation: str | None = None
    seq: int | None = None
    process_group: str | None = None
    secondary: tuple[int, ...] = ()
    confidence: Confidence = "high"
    traceback: str = ""
    detected_after_s: float | None = None
    concluded_after_s: float | None = None
    exit_code: int = 1
    conclusive: bool = False
    waiting: tuple[int, ...] = ()
    nodes: int = 1
    schema_version: int = SCHEMA_VERSION


class SafelaunchError(Exception):
    """An error that the user can act on: printed as one message, never as a traceback."""

    def __init__(
        self,
        code: str,
        summary: str,
        remedy: str = "",
        *,
        because: tuple[str, ...] = (),
        where: str = "",
        exit_code: int,
    ):
        super().__init__(summary)
        self.diagnostic = Finding(
            code=code, severity="error", summary=summary, because=because, remedy=remedy, where=where
        )
        self.exit_code = exit_code
        self.said_by_all = False  # each task of a job comes to it by the same facts: one message is enough

"""Runs the checks side by side, each with its own deadline. A check can neither hang nor break a launch."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from safelaunch.model import Finding, PreflightReport, Severity
from safelaunch.preflight.check import Check
from safelaunch.preflight.machine.host import Host

# Severities that a profile may change, and to what. A pass, a note and "could not look" stay what they are.
FAULTS = ("warning", "error")
LEVELS: Mapping[str, Severity] = {"note": "note", "warning": "warning", "error": "error"}


class Named(Protocol):
    """What a check, and a judge between nodes, is chosen by."""

    @property
    def code(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def full_only(self) -> bool: ...


NamedT = TypeVar("NamedT", bound=Named)


def select(
    checks: Sequence[NamedT], *, full: bool, only: Iterable[str] = (), skip: Iterable[str] = ()
) -> tuple[NamedT, ...]:
    """The checks that run.

    Args:
        checks: what there is.
        full: the slow ones as well.
        only: codes, names or groups; empty for all. A slow check that is asked for by itself runs without `full`.
        skip: codes, names or groups to leave out.

    Raises ValueError with the first word that names no check.
    """
    wanted, unwanted = ({word.lower() for word in words} for words in (only, skip))
    known = {word for check in checks for word in _words(check)}
    for word in sorted(wanted | unwanted):
        if word not in known:
            raise ValueError(word)

    def runs(check: Named) -> bool:
        if unwanted & _words(check) or (wanted and not wanted & _words(check)):
            return False
        return full or not check.full_only or bool(wanted & {check.code.lower(), check.name})

    return tuple(filter(runs, checks))


def _words(check: Named) -> set[str]:
    return {check.code.lower(), check.name, check.group}


def run(
    host: Host,
    *,
    checks: Sequence[Check],
    deadline_s: float,
    severity: Mapping[str, str],
    full: bool = False,
    begin: float | None = None,
) -> PreflightReport:
    """Check a node.

    Args:
        host: the machine, and the job it is checked for.
        checks: in the order in which their findings are reported. The slow ones run after the others: they start
            processes of their own, which a search for leftovers would find.
        deadline_s: seconds for everything together.
        full: whether these are all there are, for the report.
        severity: code -> `off` (the check does not run), `note`, `warning` or `error`, from a profile: what a fault
            with this code counts as.
        begin: when the looking began, on the monotonic clock, where that was before this call.
    """
    begin = time.monotonic() if begin is None else begin
    host.until = begin + deadline_s
    wanted = [check for check in checks if severity.get(check.code) != "off"]
    findings = []
    for slow, stage in sorted({(check.full_only, check.stage) for check in wanted}):
        running = [_Running(check, host) for check in wanted if (check.full_only, check.stage) == (slow, stage)]
        for one in running:
            findings += one.findings(begin + deadline_s)
    host.end_children()
    topology = host.topology() if any(check.group == "gpu" for check in wanted) else None
    return PreflightReport(weigh(findings, severity), host.name(), time.monotonic() - begin, full, topology)


def weigh(findings: Iterable[Finding], severity: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings with what a profile says that their codes count as, without those that it switches off."""
    return tuple(_weigh(finding, severity) for finding in findings if severity.get(finding.code) != "off")


class _Running:
    """A check at work in its thread. A thread that is stuck in the kernel is left behind."""

    def __init__(self, check: Check, host: Host) -> None:
        self._check = check
        self._found: list[Finding] = []
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._work, args=(host,), name=f"check-{check.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be made (pids limit): SL135 can still say so
            self._work(host)

    def _work(self, host: Host) -> None:
        try:
            for finding in self._check.function(host):
                self._found.append(finding)
        except BaseException as error:  # SystemExit too would end the thread in silence, and silence looks like a pass
            self._found.append(
                self._finding("unchecked", "the check itself failed", f"{type(error).__name__}: {error}")
            )

    def findings(self, until: float) -> list[Finding]:
        """Wait for the check, to its own deadline or to `until`, whichever is first."""
        deadline = min(self._begin + self._check.deadline_s, until)
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        late = self._thread.is_alive()
        found = list(self._found)
        if late:
            seconds = deadline - self._begin
            found.append(self._finding(self._check.late, f"the check had no answer after {seconds:.3g} s"))
        elif not found:
            found.append(self._finding("unchecked", "the check said nothing"))
        return [dataclasses.replace(finding, check=self._check.name) for finding in found]

    def _finding(self, severity: Severity, what: str, *because: str) -> Finding:
        return Finding(code=self._check.code, severity=severity, summary=f"{self._check.name}: {what}", because=because)


def _weigh(finding: Finding, severity: Mapping[str, str]) -> Finding:
    level = LEVELS.get(severity.get(finding.code, ""))
    return dataclasses.replace(finding, severity=level) if level and finding.severity in FAULTS else finding

"""What one run has found of its environment, its node and its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.model import Finding, PreflightReport


@dataclass
class Findings:
    """`report` is the preflight's, None until it has come so far; `shown` is what was told of the lint, and `heard`
    what ranks have said of themselves since."""

    report: PreflightReport | None = None
    shown: tuple[Finding, ...] = ()
    heard: list[Finding] = field(default_factory=list)

    def all(self) -> list[Finding]:
        """In the order in which they were found."""
        return [*self._before_start(), *self.heard]

    def add(self, fresh: Iterable[Finding]) -> list[Finding]:
        """Take in what ranks have said; returns what the lint has not told of it already."""
        found = unsaid(fresh, self._before_start(), self.shown)
        self.heard += found
        return found

    def _before_start(self) -> tuple[Finding, ...]:
        return self.report.findings if self.report is not None else ()


def unsaid(fresh: Iterable[Finding], lint: Iterable[Finding], shown: Iterable[Finding]) -> list[Finding]:
    """What of `fresh` the lint has not said: what it has shown counts, and what it has word by word."""
    told = {(finding.code, finding.where) for finding in shown}
    known = {(finding.code, finding.where, finding.severity, finding.summary) for finding in lint}
    return [
        finding
        for finding in fresh
        if (finding.code, finding.where) not in told
        and (finding.code, finding.where, finding.severity, finding.summary) not in known
    ]

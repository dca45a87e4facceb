"""How grave a finding about profiles and environment is: a profile may say it for each code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from safelaunch.model import Finding, Severity, Value

LEVELS: dict[str, Severity] = {"note": "note", "warning": "warning", "error": "error"}


def of_table(table: Mapping[str, Value]) -> Mapping[str, str]:
    """Code -> off, note, warning or error, of the table `[lint]` of a profile."""
    severity: Mapping[str, str] = table["severity"].value if "severity" in table else {}
    return severity


def weighed(findings: Iterable[Finding], severity: Mapping[str, str]) -> tuple[Finding, ...]:
    """Findings with the severities that a profile gives their codes; without those that are `off`."""
    return tuple(
        dataclasses.replace(finding, severity=LEVELS.get(severity.get(finding.code, ""), finding.severity))
        for finding in findings
        if severity.get(finding.code) != "off"
    )

"""The answer of `safelaunch check`: one happy line, or what is wrong, and what could not be checked.

```
error[SL102]: port 29500 is in use on this node
   = because: pid 4121 (alice, 2 h old): python train.py (listens on it)
   = help: end the holder (kill 4121), or choose another port
refused: node-b cannot run this job: 1 error, 1 warning; 8 of 10 checks passed in 0.12 s
```
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from safelaunch.model import Finding, PreflightReport
from safelaunch.printable import Line, line
from safelaunch.report import text, topology
from safelaunch.report.palette import PLAIN, Palette

QUIET = ("ok", "skipped")
MANY = 3  # doubts with one reason are told in one line
REASON = 120  # characters; `sinfo -R` and `scontrol show node` stay readable


def render(report: PreflightReport, *, job: str, verbose: bool = False, palette: Palette = PLAIN) -> list[Line]:
    """Lines for a terminal.

    Args:
        report: what the checks found.
        job: what the node was checked for, such as `8 ranks on GPUs`.
        verbose: also list the checks that passed, and those that do not apply here, and explain notes.
        palette: colours.
    """
    lines = _passed(report, palette) if verbose else []
    if verbose and report.topology is not None:
        lines += [line(), *topology.draw(report.topology), line()]
    for finding in _folded(report.findings):
        if finding.severity == "note" and not verbose:
            lines.append(text.diagnostic(finding, palette=palette)[0])
        elif finding.severity not in QUIET:
            lines += text.diagnostic(finding, palette=palette)
    return [*lines, _conclusion(report, job, palette)]


def reason(report: PreflightReport) -> Line:
    """Why the node is refused, in one line that fits a scheduler's drain reason:
    `safelaunch: SL119 GPU 3 has rows that failed to be remapped (+1 more)`."""
    first, *others = [finding for finding in report.findings if finding.severity == "error"]
    more = f" (+{len(others)} more)" if others else ""
    head = line(f"safelaunch: {first.code} {first.summary}")
    room = REASON - len(more)
    return line(head if len(head) <= room else head[: room - 3] + "...", more)


def _folded(findings: tuple[Finding, ...]) -> list[Finding]:
    """What could not be checked for one and the same reason is told once."""
    reasons = Counter(finding.because for finding in findings if finding.severity == "unchecked")
    alike: set[tuple[str, ...]] = set()
    told: list[Finding] = []
    for finding in findings:
        if finding.severity != "unchecked" or reasons[finding.because] < MANY:
            told.append(finding)
        elif finding.because not in alike:
            alike.add(finding.because)
            checks = [f.check for f in findings if f.severity == "unchecked" and f.because == finding.because]
            summary = f"{len(checks)} checks could not look: {', '.join(checks)}"
            told.append(dataclasses.replace(finding, summary=summary))
    return told


def _passed(report: PreflightReport, palette: Palette) -> list[Line]:
    quiet = [finding for finding in report.findings if finding.severity in QUIET]
    width = max((len(finding.check) for finding in quiet), default=0)
    marks = {"ok": palette.paint("good", "ok"), "skipped": palette.paint("dim", "- ")}
    return [line(marks[finding.severity], f"  {finding.check:<{width}}  ", finding.summary) for finding in quiet]


def _conclusion(report: PreflightReport, job: str, palette: Palette) -> Line:
    count: Counter[str] = Counter(finding.severity for finding in report.findings)
    faults = [
        f"{count[severity]} {severity if count[severity] == 1 else plural}"
        for severity, plural in (("error", "errors"), ("warning", "warnings"), ("unchecked", "unchecked"))
        if count[severity]
    ]
    if report.refused:
        head = line(palette.paint("error", "refused"), f": {report.host} cannot run {job}")
    elif faults:
        head = line(palette.paint("warning", "ready, with doubts"), f": {report.host} can run {job}")
    else:
        head = line(palette.paint("good", "ready"), f": {report.host} can run {job}")
    found = f"{', '.join(faults)}{'; ' if faults else ''}{_score(report.findings)}"
    return line(head, f": {found} in {report.elapsed_s:.2f} s")


def _score(findings: tuple[Finding, ...]) -> str:
    """`all 16 checks passed, 22 do not apply`. A note is nothing wrong."""
    looked = {finding.check for finding in findings if finding.severity != "skipped"}
    passed = looked - {finding.check for finding in findings if finding.severity not in ("ok", "note", "skipped")}
    idle = len({finding.check for finding in findings} - looked)
    if len(passed) == len(looked):
        score = f"all {len(looked)} checks passed" if len(looked) > 1 else f"{len(looked)} check passed"
    else:
        score = f"{len(passed)} of {len(looked)} checks passed"
    return f"{score}, {idle} {'does' if idle == 1 else 'do'} not apply," if idle else score

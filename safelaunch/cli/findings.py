"""Findings of the lint of profiles and of an environment: how they are made, and how they are told."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from safelaunch import codes, printable
from safelaunch.cli import output
from safelaunch.codec import to_json
from safelaunch.model import SCHEMA_VERSION, Finding
from safelaunch.report import text
from safelaunch.report.palette import for_stream
from safelaunch.run.lint import scene_of
from safelaunch.settings import severity
from safelaunch.settings.lint import lint
from safelaunch.settings.lint.installed import ELSEWHERE, Installed
from safelaunch.settings.resolve import Layers, apply_shell
from safelaunch.sizes import plural

SCAN_S = 60.0  # for reading the installed libraries, where nothing waits for the answer


# ---------------------------------------------------------------------------------------------- what is looked at


def of_layers(layers: Layers, installed: Installed, environ: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """The findings about profiles, and about the environment that they are put upon where there is one.

    Args:
        layers: the profiles in their order.
        installed: what the ranks will load.
        environ: of the launch; None for the profiles alone.
    """
    tables = {name: layers.table(name) for name in ("env", "lint", "timeouts", "hang")}
    if environ is not None:
        tables["env"], _ = apply_shell(tables["env"], environ)
    context = scene_of(tables, environ, layers.table("unset"), installed)
    return lint(context, severity.of_table(tables["lint"]))


# --------------------------------------------------------------------------------------------------- what is told


def show(findings: Sequence[Finding], checked: str, installed: Installed, *, as_json: bool, strict: bool) -> int:
    """Print the findings of a lint that was asked for; returns the exit code.

    Args:
        findings: in the order in which they are told.
        checked: what was looked at, for the last line: `31 variables of 3 profiles`.
        installed: against what.
        as_json: print a document.
        strict: warnings fail as well.
    """
    failing = ("error", "warning") if strict else ("error",)
    failed = any(finding.severity in failing for finding in findings)
    if as_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "failed": failed,
            "torch": installed.torch.version if installed.torch else None,
            "nccl": installed.nccl.version if installed.nccl else None,
            "findings": to_json(list(findings)),
        }
        output.show_json(document, 2)
    else:
        palette = for_stream(sys.stdout)
        for finding in findings:
            output.show([*text.diagnostic(finding, palette=palette), printable.line()])
        output.show([printable.line(f"{checked}, {against(installed)}: {count(findings)}")])
    return codes.EXIT_PROFILE if failed else codes.EXIT_OK


def against(installed: Installed) -> str:
    """What variables were held against, in words."""
    if installed is ELSEWHERE:
        return "by the catalogue alone (another Python runs the ranks)"
    torch, nccl = installed.torch, installed.nccl
    if torch is None:
        return "without an installed torch"
    words = f"against torch {torch.version}{'' if torch.cuda else ' (no CUDA)'}"
    return words + (f" and NCCL {nccl.version}" if nccl else ", without NCCL")


def count(findings: Sequence[Finding]) -> str:
    """How many findings of which severity there are, in words."""
    counts = {word: sum(finding.severity == word for finding in findings) for word in ("error", "warning", "note")}
    return ", ".join(plural(number, word) for word, number in counts.items() if number) or "nothing found"

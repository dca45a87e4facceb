"""The preflight of a launch: from settings to a report. (placeholder until the preflight lands)"""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.model import PreflightReport, Settings


def check_node(settings: Settings, run_dir: str, environ: Mapping[str, str], *, full: bool) -> PreflightReport:
    return PreflightReport((), "", 0.0, full)

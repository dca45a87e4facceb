"""What is checked before the ranks start, in the time that the agent takes to import torch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from safelaunch.model import Finding, PreflightReport, Settings
from safelaunch.run.console import Console
from safelaunch.run.findings import Findings
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained
from safelaunch.run.this_node import ThisNode

if TYPE_CHECKING:
    from safelaunch.run.node import NodeCheck


class Checks:
    """The environment, the user's signatures, and this node.

    Args:
        settings: of the launch.
        run_dir: of this node.
        environ: of the ranks.
        console: of the run.
        findings: takes the report.
        judge: takes the signatures.
        this_node: takes the host as the preflight has seen it.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: str,
        environ: Mapping[str, str],
        console: Console,
        findings: Findings,
        judge: Judge,
        this_node: ThisNode,
    ) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._environ = environ
        self._console = console
        self._findings = findings
        self._judge = judge
        self._this_node = this_node
        self._node: NodeCheck | None = None

    def run(self) -> PreflightReport:
        """Check all of it. Where the lint refuses the launch, the node is not looked at."""
        with contained(self._console.degraded, "this launch is not checked"):
            return self._run()
        return PreflightReport((), self._this_node.name, 0.0)  # the supervisor waits for one

    def _run(self) -> PreflightReport:
        apart = self._apart()
        if apart is not None:
            return self._found((apart,))
        linted = (*self._lint(), *self._judge.read_signatures(self._settings))
        report = self._found(linted)
        if not report.refused:
            checked = self._check_node({finding.summary.partition("=")[0] for finding in linted})
            report = dataclasses.replace(checked, findings=(*linted, *checked.findings))
            self._findings.report = report
        return report

    def _found(self, findings: tuple[Finding, ...]) -> PreflightReport:
        report = self._findings.report = PreflightReport(findings, self._this_node.name, 0.0)
        return report

    def _apart(self) -> Finding | None:
        """What keeps the nodes of a Slurm step apart, which the first of them tells."""
        if not self._settings.several_nodes or "SLURM_STEP_ID" not in os.environ:
            return None
        with contained(self._console.degraded, "the rendezvous ids of the nodes are not compared"):
            from safelaunch.run.rendezvous_names import will_not_meet

            found = will_not_meet(self._settings, os.environ)
            if found is not None and os.environ.get("SLURM_NODEID") == "0":
                self._console.finding(found)
            return found
        return None

    def remember(self, code: str) -> None:
        """Write down how the run ended: the next one looks closer at a node that may be bad.

        Args:
            code: of the verdict; empty for success.
        """
        if self._node is not None:
            self._node.remember(code)

    def _lint(self) -> tuple[Finding, ...]:
        """Tell what the variables of this launch do not do."""
        with contained(self._console.degraded, "the environment is not checked"):
            from safelaunch.run import lint

            found = lint.of_settings(self._settings, os.environ)
            self._findings.shown, rest = lint.at_launch(found, verbose=self._console.loud > 0)
            self._console.findings(self._findings.shown)
            if rest:
                self._console.say(rest)
            return found
        return ()

    def _check_node(self, linted: Set[str]) -> PreflightReport:
        mode = self._settings["preflight"]
        if mode != "off":
            with contained(self._console.degraded, "this node is not checked"):
                from safelaunch.run.node import NodeCheck

                self._node = NodeCheck(self._settings, self._run_dir, self._environ, self._console, linted)
                try:
                    return self._node.run(mode)
                finally:
                    self._this_node.host = self._node.host
        return PreflightReport((), self._this_node.name, 0.0)

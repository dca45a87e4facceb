"""The wiring of a run: which evidence, which rules, and what is said, behind the callables of `launch.Stages`."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from typing import Any

from safelaunch.diagnosis import diagnose, infra
from safelaunch.diagnosis.crash import cannot_tell
from safelaunch.evidence import LASTING, URGENT, case, memory
from safelaunch.evidence.black_box import leaving
from safelaunch.evidence.gather import gather
from safelaunch.launch.supervisor import Stages
from safelaunch.model import (
    Case,
    Evidence,
    Finding,
    Incident,
    LaunchPlan,
    PreflightReport,
    Settings,
    Verdict,
    WorkerGroup,
)
from safelaunch.report import bundle, palette, text
from safelaunch.report import verdict as terminal
from safelaunch.watch.early_exit import EarlyExit

URGENT_S = 0.8  # the living are held back from their end for at most this long
LASTING_S = 0.2


class Run:
    """What one launch says and knows; its methods are the stages."""

    def __init__(self, settings: Settings, plan: LaunchPlan) -> None:
        self.settings = settings
        self.plan = plan
        self.report: PreflightReport | None = None
        self.bundles: dict[int, str] = {}
        self._host = socket.gethostname()
        self._watch = EarlyExit()
        self._oom_before = memory.oom_kills()
        self._loud = int(settings["verbose"]) - int(settings["quiet"])
        self.palette = palette.for_stream(sys.stderr, settings["color"])

    def stages(self) -> Stages:
        """The callables that the supervisor gets."""
        return Stages(
            preflight=self.preflight,
            suspect=self.suspect,
            settled=lambda group: not any(leaving(worker) for worker in group.alive),
            conclude=self.conclude,
            watch=self.watch,
            infra=infra.judge,
            say=self.say,
            notice=lambda verdict, next_step: self.say(f"{terminal.headline(verdict)}; {next_step}"),
        )

    # ------------------------------------------------------------------------------------------- speaking

    def say(self, line: str) -> None:
        """One line on stderr, unless the user asked for silence."""
        if self._loud >= 0:
            self.print([f"safelaunch: {line}"])

    def print(self, lines: list[str]) -> None:
        """Lines on stderr. A terminal that is gone is no reason to fail."""
        try:
            sys.stderr.write("\n".join(lines) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass

    def finding(self, finding: Finding) -> None:
        """A finding before the start: in full when it refuses the launch, else in a line."""
        if finding.severity == "error":
            self.print(text.diagnostic(finding, palette=self.palette))
        elif finding.severity in ("note", "warning") or (finding.severity == "unchecked" and self._loud > 0):
            self.say(text.diagnostic(finding, palette=self.palette)[0])

    # -------------------------------------------------------------------------------------------- stages

    def preflight(self) -> PreflightReport:
        """Check this node, in the time that the agent takes to import torch."""
        mode = self.settings["preflight"]
        if mode == "off":
            self.report = PreflightReport((), self._host, 0.0)
            return self.report
        from safelaunch.cli.node import check_node

        self.report = check_node(self.settings, self.plan.run_dir, os.environ, full=mode == "full")
        for finding in self.report.findings:
            self.finding(finding)
        return self.report

    def suspect(self, incident: Incident, group: WorkerGroup) -> tuple[Evidence, ...]:
        """What will not wait: kernel state and stacks of the ranks that live."""
        return gather(incident, group.alive, URGENT, URGENT_S)

    def conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        """The rest of the evidence, the verdict, and the incident's folder."""
        evidence = (*urgent, *gather(incident, group.workers, LASTING, LASTING_S))
        before, now = self._oom_before, memory.oom_kills()
        grown = now - before if now is not None and before is not None else None
        facts = case.build(incident, group, evidence, self._host, grown)
        after = round(time.monotonic() - incident.t, 3)
        verdict = dataclasses.replace(self._diagnose(facts), detected_after_s=after, concluded_after_s=after)
        number = len(self.bundles)
        folder = os.path.join(self.plan.run_dir, f"incident-{number}")
        self.bundles[number] = folder
        try:
            bundle.write(folder, facts, verdict, evidence, case.stack_text)
        except OSError as error:
            self.bundles[number] = ""
            self.say(f"warning[SL902]: the evidence cannot be written to {folder}: {error.strerror}")
        return verdict

    def _diagnose(self, facts: Case) -> Verdict:
        try:
            return diagnose(facts)
        except Exception as error:  # a rule that fails must not take the verdict with it
            self.say(f"warning[SL902]: a rule failed: {error!r}")
            return cannot_tell(facts)

    def watch(self, group: WorkerGroup) -> Incident | None:
        """Ranks that wait for one that has left with 0."""
        incident = self._watch.look(group)
        if self._watch.due_notice():
            left = [worker.rank for worker in group.workers if worker.exit is not None]
            self.say(f"SL408: rank {left[0]} has exited with 0, and the other ranks wait for it in a collective")
        return None if self.settings["on_hang"] == "report" else incident

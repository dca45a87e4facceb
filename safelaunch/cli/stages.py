"""The wiring of a run: which evidence, which rules, and what is said, behind the callables of `launch.Stages`."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch.cli.hang import Hangs
from safelaunch.diagnosis import diagnose, infra
from safelaunch.diagnosis.crash import cannot_tell
from safelaunch.evidence import LASTING, URGENT, case, memory
from safelaunch.evidence.black_box import leaving
from safelaunch.evidence.gather import gather
from safelaunch.launch.stages import Stages
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
from safelaunch.watch.hang import HangWatch

if TYPE_CHECKING:
    from safelaunch.cli.node import NodeCheck

URGENT_S = 0.8  # the living are held back from their end for at most this long
LASTING_S = 0.2


class Run:
    """What one launch says and knows; its methods are the stages."""

    def __init__(self, settings: Settings, plan: LaunchPlan, black_box: str | None) -> None:
        self.settings = settings
        self.plan = plan
        self.report: PreflightReport | None = None
        self.node: NodeCheck | None = None
        self.bundles: dict[int, str] = {}
        self._host = socket.gethostname()
        self.hangs = Hangs(
            black_box,
            HangWatch(settings["on_hang"], settings["hang_abort_after"]),
            self.say,
            self._new_folder,
            self._host,
        )
        self._folders = 0
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
            watch=self.hangs.poll,
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
        try:
            from safelaunch.cli.node import NodeCheck

            self.node = NodeCheck(self.settings, self.plan.run_dir, os.environ, self.say, self.finding)
            self.report = self.node.run(mode)
        except Exception as error:  # the run must not wait for a check that has failed itself
            self.say(f"warning[SL902]: safelaunch's own fault, this node is not checked: {error!r}")
            self.report = PreflightReport((), self._host, 0.0)
        return self.report

    def remember(self, code: str) -> None:
        """Write down how the run ended: the next one looks closer at a node that may be bad."""
        if self.node is not None:
            self.node.remember(code)

    def suspect(self, incident: Incident, group: WorkerGroup) -> tuple[Evidence, ...]:
        """What will not wait: kernel state and stacks of the ranks that live. Of a hang they have been taken."""
        return () if incident.kind == "hang" else gather(incident, group.alive, URGENT, URGENT_S)

    def conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        """The rest of the evidence, the verdict, and the incident's folder. A fault of ours must not keep the ranks
        waiting for their end."""
        try:
            return self._conclude(incident, group, urgent)
        except Exception as error:
            self.say(f"warning[SL902]: safelaunch's own fault while it concluded: {error!r}")
            told = self.hangs.last_word() if incident.kind == "hang" else None
            self.bundles[len(self.bundles)] = self.hangs.folder if told is not None else ""
            return told or cannot_tell(Case(incident, self._host, group.world_size, ()))

    def _conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        before, now = self._oom_before, memory.oom_kills()
        grown = now - before if now is not None and before is not None else None
        if incident.kind == "hang":
            facts, verdict = self.hangs.conclude(incident, group, grown)
            return self._keep(facts, verdict, self.hangs.evidence, self.hangs.folder)
        evidence = (*urgent, *gather(incident, group.workers, LASTING, LASTING_S))
        facts = case.build(incident, group, evidence, self._host, grown)
        after = round(time.monotonic() - incident.t, 3)
        verdict = dataclasses.replace(self._diagnose(facts), detected_after_s=after, concluded_after_s=after)
        if not verdict.culprit_ranks:
            # The ranks that waited have given up, which says less than what was seen while they waited.
            told = self.hangs.last_word(f"the wait ended when {verdict.summary}")
            if told is not None:
                self.bundles[len(self.bundles)] = self.hangs.folder
                return told
        return self._keep(facts, verdict, evidence, "")

    def _keep(self, facts: Case, verdict: Verdict, evidence: tuple[Evidence, ...], folder: str) -> Verdict:
        folder = folder or self._new_folder()
        try:
            bundle.write(folder, facts, verdict, evidence, case.stack_text)
        except OSError as error:
            self.say(f"warning[SL902]: the evidence cannot be written to {folder}: {error.strerror}")
            folder = ""
        self.bundles[len(self.bundles)] = folder
        return verdict

    def _new_folder(self) -> str:
        self._folders += 1
        return os.path.join(self.plan.run_dir, f"incident-{self._folders - 1}")

    def _diagnose(self, facts: Case) -> Verdict:
        try:
            return diagnose(facts)
        except Exception as error:  # a rule that fails must not take the verdict with it
            self.say(f"warning[SL902]: a rule failed: {error!r}")
            return cannot_tell(facts)

"""The wiring of a run: which evidence, which rules, and what is said, behind the callables of `launch.Stages`."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Any

from safelaunch.cli.endings import Endings
from safelaunch.cli.gpus import Hardware, read
from safelaunch.cli.hang import Hangs
from safelaunch.cli.output import Output
from safelaunch.cli.ranks import listener, unsaid
from safelaunch.cli.report import Reports
from safelaunch.cli.slow import Slow
from safelaunch.cli.start import Start
from safelaunch.diagnosis import diagnose, infra, untold, why
from safelaunch.diagnosis.blame.rank_guard import told_frames
from safelaunch.diagnosis.crash import aborted
from safelaunch.diagnosis.notice import gave_up
from safelaunch.evidence import ASKED, LASTING, URGENT, case, memory, word
from safelaunch.evidence.black_box import leaving
from safelaunch.evidence.gather import gather
from safelaunch.evidence.source_lines import describe, with_raised_exits
from safelaunch.launch.stages import Stages
from safelaunch.model import (
    Case,
    Evidence,
    Finding,
    Incident,
    LaunchPlan,
    PreflightReport,
    Settings,
    Stack,
    Verdict,
    WorkerGroup,
)
from safelaunch.printable import Line, whole
from safelaunch.report import banner, bundle, palette, text
from safelaunch.report import verdict as terminal
from safelaunch.settings import severity
from safelaunch.watch.endings import BUSY_LIMIT_S, EndWatch
from safelaunch.watch.hang import HangWatch
from safelaunch.watch.slow import SlowWatch

if TYPE_CHECKING:
    from safelaunch.cli.node import NodeCheck
    from safelaunch.evidence.logs.signatures import Signature
    from safelaunch.preflight.machine.host import Host
    from safelaunch.preflight.machine.nvml import Snapshot
    from safelaunch.report.banner import Banner

URGENT_S = 0.8  # the living are held back from their end for at most this long
LASTING_S = 0.2
ASKED_S = 0.7  # a beat thread looks five times a second
SOURCE_S = 0.3
SLOW_GPUS_S = 5.0  # nobody waits for what is said of a slow run


class Run:
    """What one launch says and knows; its methods are the stages."""

    def __init__(self, settings: Settings, plan: LaunchPlan, black_box: str | None) -> None:
        self.settings = settings
        self.plan = plan
        self.report: PreflightReport | None = None
        self.node: NodeCheck | None = None
        self.bundles: dict[int, str] = {}
        self._stderr = Output(sys.stderr)
        self._host = socket.gethostname()
        self.reports = Reports(plan.run_dir, self._findings, self.say)
        self.hangs = Hangs(
            black_box,
            HangWatch(settings["on_hang"], settings["hang_abort_after"]),
            self.say,
            self._new_folder,
            self._host,
            self.reports.later,
            lambda group: self._hardware(group, waits=True),
            self._explained,
        )
        self.endings = Endings(black_box, self._end_watch, self.say, self._host, self._explained)
        expect, watch = settings.slow.get("expect_step"), settings.slow.get("watch")
        self.slow = Slow(
            black_box if watch is None or watch.value else None,
            SlowWatch(expect.value if expect is not None else None),
            self.say,
            self._show_slow,
            self._new_folder,
            self._host,
            self.reports.later,
            lambda group: read(group.workers, self._known_host(), since_s=self._since_s, deadline_s=SLOW_GPUS_S),
        )
        self.heard: list[Finding] = []
        self._shown: tuple[Finding, ...] = ()  # of the lint
        self._ranks = listener(black_box, settings, os.environ, self.gpus, self.say, plan.script)
        self._folders = 0
        self._oom_before = memory.oom_kills()
        self._since_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._dying: Hardware | None = None
        self._messages: tuple[Signature, ...] | None = None  # None: the user has none
        self._loud = int(settings["verbose"]) - int(settings["quiet"])
        self.palette = palette.for_stream(sys.stderr, settings["color"])
        wanted = "banner" in settings.launch and settings.launch["banner"].value
        show = self.show_banner if self._loud > 0 or (wanted and self._loud >= 0) else None
        self.start = Start(settings, plan.run_dir, os.environ, self._known_host, show, self.say)

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
            started=self.start,
        )

    def _known_host(self) -> Host | None:
        """This node as the preflight has seen it; None without one."""
        return self.node.host if self.node is not None else None

    def gpus(self) -> Snapshot | None:
        """What NVML has said of this node already."""
        host = self._known_host()
        return host.nvml_known() if host is not None else None

    def show_banner(self, shown: Banner) -> None:
        """One screen about what the ranks run with."""
        self.print(banner.lines(shown, self.palette))

    # ------------------------------------------------------------------------------------------- speaking

    def say(self, line: str) -> None:
        """One line on stderr, unless the user asked for silence."""
        if self._loud >= 0:
            self.print([whole("safelaunch: ", line)])

    def print(self, lines: Iterable[Line]) -> None:
        """Lines on stderr, whole and in order. Returns at once, whoever reads them."""
        self._stderr.write(lines)

    def finish_speaking(self, stall_s: float) -> None:
        """Wait until all is written, or until nothing of it has been read for `stall_s` seconds."""
        self._stderr.finish(stall_s)

    def _show_slow(self, verdict: Verdict, folder: str) -> None:
        """A verdict while the run goes on."""
        if self._loud >= 0:
            self.print(terminal.lines(verdict, folder, palette=self.palette))

    def finding(self, finding: Finding) -> None:
        """A finding before the start: in full when it refuses the launch, else in a line."""
        if finding.severity == "error":
            self.print(text.diagnostic(finding, palette=self.palette))
        elif finding.severity in ("note", "warning") or (finding.severity == "unchecked" and self._loud > 0):
            self.say(text.diagnostic(finding, palette=self.palette)[0])

    # -------------------------------------------------------------------------------------------- stages

    def preflight(self) -> PreflightReport:
        """Check the environment and this node, in the time that the agent takes to import torch."""
        linted = (*self._lint(), *self._signatures())
        self.report = PreflightReport(linted, self._host, 0.0)
        if not self.report.refused:
            report = self._check_node({finding.summary.partition("=")[0] for finding in linted})
            self.report = dataclasses.replace(report, findings=(*linted, *report.findings))
        return self.report

    def _lint(self) -> tuple[Finding, ...]:
        """Tell what the variables of this launch do not do. A fault of ours is told, and costs nothing else."""
        try:
            from safelaunch.cli import lint

            findings = lint.of_settings(self.settings, os.environ)
            shown, rest = lint.at_launch(findings, verbose=self._loud > 0)
        except Exception as error:
            self.say(f"warning[SL902]: safelaunch's own fault, the environment is not checked: {error!r}")
            return ()
        self._shown = shown
        self._tell(shown)
        if rest:
            self.say(rest)
        return findings

    def _signatures(self) -> tuple[Finding, ...]:
        """Read the user's own messages, and tell what is wrong with them: now, and not when they are needed."""
        try:
            from safelaunch.cli import messages

            self._messages, found = messages.at_start(messages.files(self.settings.diagnosis), os.environ)
        except TimeoutError as error:
            self.say(f"warning[SL290]: this run knows its messages without the user's own: {error}")
            return ()
        except Exception as error:
            self.say(f"warning[SL902]: safelaunch's own fault, files of signatures are not checked: {error!r}")
            return ()
        self._tell(found)
        return found

    def _tell(self, findings: Iterable[Finding]) -> None:
        """Findings about environment and devices: a line with what to do, or all of it where the user wants more."""
        from safelaunch.cli import lint

        for finding in findings:
            if self._loud > 0 or finding.severity == "error":
                self.print(text.diagnostic(finding, palette=self.palette))
            else:
                self.say(lint.line(finding, self.palette))

    def _check_node(self, linted: Set[str]) -> PreflightReport:
        """`linted` are variables that the lint has spoken of: the node has no second word about them."""
        told = {f"environment variable {name}" for name in linted}

        def tell(finding: Finding) -> None:
            if finding.where not in told:
                self.finding(finding)

        mode = self.settings["preflight"]
        if mode == "off":
            return PreflightReport((), self._host, 0.0)
        try:
            from safelaunch.cli.node import NodeCheck

            self.node = NodeCheck(self.settings, self.plan.run_dir, os.environ, self.say, tell)
            return self.node.run(mode)
        except Exception as error:  # the run must not wait for a check that has failed itself
            self.say(f"warning[SL902]: safelaunch's own fault, this node is not checked: {error!r}")
            return PreflightReport((), self._host, 0.0)

    def remember(self, code: str) -> None:
        """Write down how the run ended: the next one looks closer at a node that may be bad."""
        if self.node is not None:
            self.node.remember(code)

    def watch(self, group: WorkerGroup) -> Incident | None:
        """One round over the living ranks; an incident when it is time to end them."""
        self.reports.write()  # of an attempt before
        self.listen(group)
        incident = self.endings.poll(group)
        if not self.endings.pending:
            incident = self.hangs.poll(group)
        stalled = incident is not None or self.endings.pending or self.hangs.watch.notice is not None
        self.slow.poll(group, stalled=stalled)
        return incident

    def _end_watch(self) -> EndWatch:
        limit = self.settings["hang_abort_after"]
        return EndWatch(
            self.settings["on_hang"] != "report",
            self.plan.shutdown_timeout,
            BUSY_LIMIT_S if limit is None else limit,
        )

    def _findings(self) -> list[Finding]:
        return [*(self.report.findings if self.report is not None else ()), *self.heard]

    def listen(self, group: WorkerGroup, *, last: bool = False) -> None:
        """Tell what follows from what the ranks say of themselves, unless the lint has told it already. `last` says
        that the ranks will say no more."""
        fresh = self._ranks.poll(group, last=last)
        if not fresh:
            return
        from safelaunch.cli import lint

        weighed = severity.weighed(fresh, severity.of_table(self.settings.lint))
        found = unsaid(weighed, self.report.findings if self.report is not None else (), self._shown)
        shown, _ = lint.at_launch(found, verbose=self._loud > 0)
        self.heard += found
        self._tell(shown)

    def suspect(self, incident: Incident, group: WorkerGroup) -> tuple[Evidence, ...]:
        """What will not wait: kernel state and stacks of the ranks that live. Of a hang they have been taken."""
        if incident.kind == "hang":
            return ()
        self._dying = self._hardware(group, waits=False)
        return gather(incident, group.alive, URGENT, URGENT_S)

    def _hardware(self, group: WorkerGroup, *, waits: bool) -> Hardware:
        return Hardware(group.workers, self._known_host(), self._since_s, waits=waits)

    def conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        """The rest of the evidence, the verdict, and the incident's folder. A fault of ours must not keep the ranks
        waiting for their end."""
        try:
            return self._conclude(incident, group, urgent)
        except Exception as error:
            self.say(f"warning[SL902]: safelaunch's own fault while it concluded: {error!r}")
            told = self.hangs.last_word() if incident.kind == "hang" else None
            self.bundles[len(self.bundles)] = self.hangs.folder if told is not None else ""
            return told or untold(Case(incident, self._host, group.world_size, ()))

    def _conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        before, now = self._oom_before, memory.oom_kills()
        grown = now - before if now is not None and before is not None else None
        if incident.kind == "hang":
            facts, verdict = self.hangs.conclude(incident, group, grown)
            return self._keep(facts, verdict, self.hangs.evidence, self.hangs.folder)
        evidence = (*urgent, *gather(incident, group.workers, LASTING, LASTING_S))
        hardware = self._dying

        def judged() -> tuple[Case, Verdict]:
            facts = case.build(incident, group, evidence, self._host, grown)
            facts = _with_source(self._explained(hardware.add_to(facts) if hardware is not None else facts))
            return facts, self._diagnose(facts)

        facts, verdict = judged()
        if not verdict.culprit_ranks and group.alive:
            # Nobody can be named: the living may know more, such as an exception that a program has caught.
            asked = gather(incident, group.alive, ASKED, ASKED_S)
            evidence = (*evidence, *(item for item in asked if item.source == word.SOURCE))
            facts, verdict = judged()
        if self.hangs.told is None and aborted.may_be(facts, verdict):
            evidence, facts, verdict = self._before_an_abort(group, evidence, facts, verdict)
        evidence = (*evidence, *(hardware.evidence() if hardware is not None else ()))
        after = round(time.monotonic() - incident.t, 3)
        told_at = self.endings.told or 0.0
        first = round(told_at - incident.t, 3) if told_at > incident.t else after
        verdict = dataclasses.replace(verdict, detected_after_s=first, concluded_after_s=after)
        if self.hangs.told is not None and gave_up(verdict, self.hangs.told):
            self.bundles[len(self.bundles)] = self.hangs.folder
            return self.hangs.last_word(f"the wait ended when {verdict.summary}") or verdict
        return self._keep(facts, verdict, evidence, "")

    def _before_an_abort(
        self, group: WorkerGroup, evidence: tuple[Evidence, ...], facts: Case, verdict: Verdict
    ) -> tuple[tuple[Evidence, ...], Case, Verdict]:
        """What ranks that torch's watchdogs have ended had waited for, by the dumps that these left and by what the
        living say; all as it is, where no watchdog had given up."""
        from safelaunch.evidence import own_dumps

        dumps = own_dumps.of_the_dead(group.workers, self.plan.env, os.environ)
        given_up = frozenset(item.rank for item in dumps if item.data is not None and item.data["given_up"])
        if not given_up:
            return evidence, facts, verdict
        more = (*evidence, *dumps, *gather(facts.incident, group.alive, ASKED, ASKED_S))
        found = case.build(facts.incident, group, more, self._host, facts.oom_kills, now=time.monotonic())
        before = aborted.as_it_was(found, given_up)
        if before is None:
            return evidence, facts, verdict
        stacks = [rank.stack for rank in before.ranks if rank.stack is not None]
        before = dataclasses.replace(before, source=describe(stacks, SOURCE_S), gpus=facts.gpus)
        told = aborted.of_waiting(verdict, self._diagnose(before), found)
        return (more, before, told) if told is not verdict else (evidence, facts, verdict)

    def _explained(self, facts: Case) -> Case:
        """The case with what the signatures know of its exceptions, and the room in /dev/shm."""
        facts = dataclasses.replace(facts, shm=memory.shm())
        if not any(rank.error for rank in facts.ranks):
            return facts
        try:
            from safelaunch.cli import messages
            from safelaunch.evidence.logs import signatures

            return messages.classified(facts, self._messages if self._messages is not None else signatures.shipped())
        except Exception as error:  # without it the verdict names the exception alone
            self.say(f"warning[SL902]: safelaunch's own fault, messages are not looked up: {error!r}")
            return facts

    def _keep(self, facts: Case, verdict: Verdict, evidence: tuple[Evidence, ...], folder: str) -> Verdict:
        folder = folder or self._new_folder()
        folder, fault = bundle.write(folder, facts, verdict, evidence, case.stack_text, why=why.lines)
        if fault:
            self.say(f"warning[SL902]: {fault}")
        self.reports.later(folder, facts, verdict)
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
            return untold(facts)


def _with_source(facts: Case) -> Case:
    """With the line that raised SystemExit, where a program has failed so, and with what stands around the lines at
    which ranks failed, where others have left in good order: a condition there tells who is wrong. Of ranks that have
    failed and live on, with the lines at which they are."""
    facts = with_raised_exits(facts, SOURCE_S)
    alive = [rank.stack for rank in facts.ranks if rank.exit is None and rank.rank in facts.incident.ranks]
    if any(alive):
        return dataclasses.replace(facts, source=describe([stack for stack in alive if stack], SOURCE_S))
    if not any(rank.exit is not None and rank.exit.code == 0 for rank in facts.ranks):
        return facts
    stacks = [Stack(tuple(told_frames(rank)), "traceback") for rank in facts.ranks]
    return dataclasses.replace(facts, source=describe(stacks, SOURCE_S))

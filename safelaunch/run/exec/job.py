"""The watch over one job of ranks that somebody else has started."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from typing import Any

from safelaunch import black_box_reader
from safelaunch.evidence.black_box import leaving
from safelaunch.launch.joined import Job
from safelaunch.model import Case, Incident, LaunchPlan, Settings, Verdict, WorkerGroup
from safelaunch.report.verdict import relative
from safelaunch.run.conclude import Conclusions
from safelaunch.run.console import Console
from safelaunch.run.endings import Endings
from safelaunch.run.exec.ends import ASKED_FOR
from safelaunch.run.findings import Findings
from safelaunch.run.hang import Hangs
from safelaunch.run.history import History
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge
from safelaunch.run.ranks import Hearing, of_others
from safelaunch.run.restarts import Restarts
from safelaunch.run.slow import Slow
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.endings import BUSY_LIMIT_S, EndWatch
from safelaunch.watch.hang import HangWatch
from safelaunch.watch.slow import SlowWatch

SETTLE_S, SETTLE_LIMIT_S = 0.15, 0.9  # as in `launch.supervisor`: consequences of a death, and exit codes that are near
LIVES_ON_S = 3.0  # whoever owns the ranks has ended the others by then, or lets them go on
FRESH_S = 2.0  # a job that has just ended may be joined by ranks that come late
STANDS_S = 30.0  # what was told in a line is told in full
UNSEEN = "how rank {} ended was told to its parent alone: it has left no trace, as after SIGKILL"
SUPPOSED = "rank {} is taken to be pid {}, which was started beside the others and has not joined"


@dataclass(frozen=True)
class Shared:
    """What the jobs below one command have in common.

    `abort_after` is in seconds, None for never. `path` is that of the black box.
    """

    settings: Settings
    console: Console
    incidents: Incidents
    findings: Findings
    judge: Judge
    node: ThisNode
    plan: LaunchPlan
    path: str
    abort_after: float | None


class JobJudge(Judge):
    """The rules, with what is not certain of the ranks of one job.

    Args:
        judge: of the run.
        job: whose ranks they are.
    """

    def __init__(self, judge: Judge, job: Job) -> None:
        self._judge, self._job = judge, job

    def explained(self, facts: Case) -> Case:
        """See `Judge`."""
        return self._judge.explained(facts)

    def verdict(self, facts: Case) -> Verdict:
        """What the rules say, and what it rests on."""
        verdict = self._judge.verdict(facts)
        members = [(rank, one) for rank, one in sorted(self._job.members.items()) if rank in verdict.culprit_ranks]
        unsure = [SUPPOSED.format(rank, one.said.pid) for rank, one in members if one.supposed]
        unseen = [UNSEEN.format(rank) for rank, one in members if one.inferred]
        if not unsure and not unseen:
            return verdict
        sure = not unseen and verdict.confidence != "low"
        because = (*unsure, *unseen, *verdict.because)
        return dataclasses.replace(verdict, because=because, confidence="medium" if sure else "low")


class JobWatch:
    """One job from its first rank to its last.

    Args:
        job: its ranks, as they become known.
        shared: with other jobs.
        console: the voice of this job.
    """

    def __init__(self, job: Job, shared: Shared, console: Console) -> None:
        self.job = job
        self.verdict: Verdict | None = None  # once it has failed
        self._shared, self._console = shared, console
        reader = black_box_reader.Reader(shared.path)
        on_hang = "report" if shared.abort_after is None else "abort"
        judge = JobJudge(shared.judge, job)
        nodes = JobNodes("", judge, console)
        self.hangs = Hangs(
            reader,
            HangWatch(on_hang, shared.abort_after),
            console,
            shared.incidents,
            judge,
            shared.node,
            nodes,
        )
        self._endings = Endings(
            reader,
            lambda: EndWatch(False, shared.plan.shutdown_timeout, BUSY_LIMIT_S),
            console,
            judge,
            shared.node.name,
        )
        self._conclusions = Conclusions(
            shared.plan,
            console,
            shared.incidents,
            judge,
            shared.node,
            self.hangs,
            self._endings,
            nodes,
            Restarts(shared.plan, console),
            History(shared.plan, os.environ, kept=False),
        )
        self.slow = Slow(reader, SlowWatch(None), console, shared.incidents, shared.node)
        self._hearing = Hearing(of_others(shared.path, console), shared.settings, console, shared.findings)
        self._incident: Incident | None = None
        self._urgent: Any = None
        self._concluded_at = 0.0
        self._told = self._told_verdict = False  # in a line, and in full
        self._stands = ""  # what was told in full

    @property
    def group(self) -> WorkerGroup:
        return self.job.group(self._shared.path)

    @property
    def is_settling(self) -> bool:
        """Whether a verdict is due in a moment."""
        return self._incident is not None

    def poll(self, interrupted: bool) -> Verdict | None:
        """One round; a verdict when it is time to end the command for it.

        Args:
            interrupted: whether the command was told to end: what its ranks do then is no failure.
        """
        group, now = self.group, time.monotonic()
        if self._incident is not None:
            settled = now >= self._incident.t + SETTLE_LIMIT_S or not any(map(leaving, group.alive))
            if now >= self._incident.t + SETTLE_S and settled:
                self._conclude(group)
            return None
        if self.verdict is not None:
            self._tell_that_it_goes_on(group, now)
            return None
        failed = [one for one in group.workers if one.exit is not None and one.exit.code not in (0, *ASKED_FOR)]
        if failed and not interrupted:
            first = min(failed, key=lambda one: one.exit.t if one.exit is not None else now)
            self._open(group, first.rank, first.exit.t if first.exit is not None else now)
            return None
        return self._watch_for_hangs(group, interrupted)

    def _watch_for_hangs(self, group: WorkerGroup, interrupted: bool) -> Verdict | None:
        if interrupted or not self.job.watched:
            return None
        if self.job.left and all(one.exit is None or one.exit.code == 0 for one in group.workers):
            self.hangs.ended_well()
        if self.job.left or not group.alive:
            return None
        self._hearing.poll(group)
        self._endings.poll(group)
        incident = self.hangs.poll(group) if not self._endings.pending else None
        stalled = incident is not None or self._endings.pending or self.hangs.told is not None
        self.slow.poll(group, stalled=stalled)
        if incident is not None:
            self._incident = incident
            self._conclude(group)
            return self.verdict
        self._tell_in_full()
        return None

    def _open(self, group: WorkerGroup, rank: int, t: float) -> None:
        self._incident = Incident("exit", 0, (rank,), t)
        self._urgent = self._conclusions.suspect(self._incident, group)

    def _conclude(self, group: WorkerGroup) -> None:
        assert self._incident is not None
        verdict = self._conclusions.conclude(self._incident, group, self._urgent)
        self.verdict, self._incident, self._concluded_at = verdict, None, time.monotonic()

    def _tell_that_it_goes_on(self, group: WorkerGroup, now: float) -> None:
        assert self.verdict is not None
        if not self._told and group.alive and now > self._concluded_at + LIVES_ON_S:
            self._told = True
            folder = self.folder
            kept = f"; evidence in {relative(folder)}" if folder else ""
            self._console.notice(self.verdict, f"{len(group.alive)} of its ranks live on{kept}")

    def _tell_in_full(self) -> None:
        """A hang that nobody ends is told once more, with its reasons."""
        told = self.hangs.told
        if told is None or self._stands == self.hangs.folder:
            return
        timed = self.hangs.timed(told)
        if (timed.concluded_after_s or 0.0) - (timed.detected_after_s or 0.0) > STANDS_S:
            self._stands = self.hangs.folder
            self._console.slow_verdict(timed, self.hangs.folder)

    def tell_now(self) -> None:
        """Tell its verdict in full, once: nobody may be there later on."""
        if self.verdict is not None and not self._told_verdict:
            self._told = self._told_verdict = True
            self._console.slow_verdict(self.verdict, self.folder)

    def is_done(self, short_of_room: bool) -> bool:
        """Whether the job is over, and nothing more is to be learned of it.

        Args:
            short_of_room: whether other jobs need its slots.
        """
        if self.is_settling or not (self.job.over or (short_of_room and self.job.left)):
            return False
        members = self.job.members.values()
        well = all(one.exit.code == 0 if one.exit is not None else bool(one.left) for one in members)
        last = max((one.exit.t if one.exit is not None else one.left for one in members), default=0.0)
        known = well or self.verdict is not None or short_of_room
        return known and (short_of_room or time.monotonic() - last > FRESH_S)

    @property
    def folder(self) -> str:
        """Of the incident of its verdict."""
        if self.verdict is None:
            return ""
        return self._shared.incidents.folder_of(self.verdict) or self.hangs.folder

    def last_word(self, exit_code: int, interrupted: bool) -> Verdict | None:
        """What is to be said of it when the command has ended."""
        group = self.group
        if self._incident is not None:
            self._conclude(group)
        failed = [one for one in group.workers if one.exit is not None and one.exit.code != 0]
        if self.verdict is None and exit_code != 0 and failed and not interrupted:
            first = min(failed, key=lambda one: one.exit.t if one.exit is not None else 0.0)
            self._open(group, first.rank, first.exit.t if first.exit is not None else time.monotonic())
            self._conclude(group)
        if self.verdict is None and self.hangs.told is not None:
            self.verdict = self.hangs.last_word(exit_code=exit_code)
        return self.verdict

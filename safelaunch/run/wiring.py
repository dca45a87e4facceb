"""What one run consists of once its processes are there: the only place that knows all parts, and does nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from safelaunch import black_box_reader
from safelaunch.evidence.black_box import leaving
from safelaunch.launch.stages import Stages
from safelaunch.model import Incident, LaunchPlan, PreflightReport, Settings, Verdict, WorkerGroup
from safelaunch.run.checks import Checks
from safelaunch.run.conclude import Conclusions
from safelaunch.run.console import Console
from safelaunch.run.endings import Endings
from safelaunch.run.endpoint import endpoint_host, node_rank
from safelaunch.run.events import Events
from safelaunch.run.findings import Findings
from safelaunch.run.hang import Hangs
from safelaunch.run.history import History
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_end import JobEnd
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge
from safelaunch.run.nodes_asked import tell_leaving
from safelaunch.run.notify import Notifier
from safelaunch.run.own_faults import contained
from safelaunch.run.pulses import pulses_of
from safelaunch.run.ranks import Hearing, listener
from safelaunch.run.restarts import Restarts
from safelaunch.run.slow import Slow
from safelaunch.run.start import Start
from safelaunch.run.stops import Stops
from safelaunch.run.this_node import ThisNode
from safelaunch.run.traces import Traces
from safelaunch.run.watching import Watching
from safelaunch.watch.endings import BUSY_LIMIT_S, EndWatch
from safelaunch.watch.hang import HangWatch
from safelaunch.watch.slow import SlowWatch

if TYPE_CHECKING:
    from safelaunch.run.metrics import Metrics
    from safelaunch.run.trainer_progress import TrainerProgress


class Parts:
    """The parts of one run.

    Args:
        settings: of the launch.
        plan: of the run.
        environ: of the ranks.
        black_box: its path, None where there is none.
    """

    def __init__(self, settings: Settings, plan: LaunchPlan, environ: Mapping[str, str], black_box: str | None) -> None:
        self.console = console = Console(settings)
        self._may_speak = not settings.several_nodes or node_rank(settings) == 0
        self.findings = Findings()
        self.was_spare = False  # it has waited beside the nodes of the job; with attempts it has taken one's place
        self.incidents = Incidents(plan.run_dir, console, self.findings)
        node, judge = ThisNode(), Judge(console)
        self.nodes = nodes = JobNodes(endpoint_host(settings), judge, console)
        self.checks = Checks(settings, plan.run_dir, environ, console, self.findings, judge, node)
        self.start = Start(settings, plan.run_dir, environ, node, console)
        heard = listener(black_box, settings, environ, node, console, plan.script, nodes.inboxes.values)
        self.hearing = Hearing(heard, settings, console, self.findings)
        reader = _reader(black_box, console)
        hang_watch = HangWatch(settings["on_hang"], settings["hang_abort_after"])
        about = {"run_id": plan.run_id, "run_dir": plan.run_dir, "host": node.name}
        self.notifier = Notifier(settings.notify, about, console.say, lambda: self.speaks)
        self.events = Events(plan, reader, console.degraded)
        self.metrics = _metrics(settings, plan, reader, console)
        counted = [self.metrics.notice] if self.metrics is not None else []
        console.heard = _each(self.notifier.notice, self.events.notice, *counted)
        self.incidents.heard = _each(self.notifier.verdict, self.events.verdict, *counted)
        self.hangs = Hangs(reader, hang_watch, console, self.incidents, judge, node, nodes)
        nodes.look = self.hangs.seen
        endings = Endings(reader, lambda: _end_watch(settings, plan), console, judge, node.name)
        watched = "watch" not in settings.slow or bool(settings.slow["watch"].value)
        pace = _slow_watch(settings)
        of_nodes = None
        if settings.several_nodes:
            from safelaunch.run.slow_nodes import SlowNodes

            of_nodes = SlowNodes(nodes, pace, console, self.incidents, node)
        self.slow = Slow(reader if watched else None, pace, console, self.incidents, node, of_nodes)
        self._reader, self.progress = reader, self._trainer_progress()
        self.stops = Stops(plan, reader, console, nodes, JobEnd(settings, environ, time.time()))
        traces = Traces(plan, reader, console, nodes)
        self.watching = Watching(self.incidents, self.hearing, endings, self.hangs, self.slow, self.stops, traces)
        self.restarts = Restarts(plan, console)
        self.history = History(plan, os.environ, kept=bool(settings["history"]))
        self.restarts.blamed.judged = judge.verdict
        self.restarts.blamed.tell_others = lambda codes, stays: tell_leaving(nodes.link, codes, stays=stays)
        self.conclusions = Conclusions(
            plan, console, self.incidents, judge, node, self.hangs, endings, nodes, self.restarts, self.history
        )

    @property
    def speaks(self) -> bool:
        """Whether this node is the one that speaks for the job, to those outside of it."""
        return not self.restarts.blamed.left and self.nodes.first(otherwise=self._may_speak)

    def note_steps(self, group: WorkerGroup) -> None:
        """How far the ranks of the last attempt have come, while their slots are there."""
        looks = pulses_of(self._reader, group.workers).values()
        self.history.steps = max((pulse.steps for pulse in looks), default=0) or self.history.steps

    def stages(self) -> Stages:
        """What the supervisor calls."""
        return Stages(
            preflight=self._preflight,
            started=self.start,
            watch=self._watch,
            suspect=self.conclusions.suspect,
            settled=_settled,
            conclude=self.conclusions.conclude,
            infra=self.nodes.of_agent,
            say=self.console.say,
            notice=self.console.notice,
            address=lambda: self.nodes.address,
            events={"nodes": self.nodes.meet, "spare": self._be_spare, "leaves": self.restarts.blamed.on_leaves},
            reason=self.nodes.reason,
            stops=lambda: self.restarts.stops or self.stops.wanted is not None,
            interrupted=self.nodes.interrupted,
            asks_to_stop=self.stops.ask,
            overdue=lambda: self.stops.overdue,
        )

    def _trainer_progress(self) -> TrainerProgress | None:
        """Only under Kubeflow Trainer v2, and where it wants to be told."""
        if not os.environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
            return None
        from safelaunch.run.trainer_progress import TrainerProgress

        return TrainerProgress(os.environ, self.console.say, lambda: self.speaks)

    def _watch(self, group: WorkerGroup) -> Incident | None:
        with contained(self.console.degraded, "the events of this run are not written down"):
            self.events.poll(group)
        if self.metrics is not None:
            with contained(self.console.degraded, "there are no metrics of this run"):
                self.metrics.poll(group)
        if self.progress is not None:
            self._tell_trainer(group, self.progress)
        return self.watching.poll(group)

    def _tell_trainer(self, group: WorkerGroup, progress: TrainerProgress) -> None:
        with contained(self.console.degraded, "the progress of this run is not told"):
            progress.poll(pulses_of(self._reader, group.alive).values(), time.monotonic())

    def _be_spare(self, waits: bool) -> None:
        self.was_spare = True
        waiting, called = (
            "this node is a spare: it waits until one is lost",
            "this node takes the place of one that is lost, or has left the job",
        )
        self.console.say(waiting if waits else called)

    def _preflight(self) -> PreflightReport:
        report = self.checks.run()
        if not report.refused:
            self.nodes.open()  # here, where a name that is looked up may take its time
        return report


def _metrics(
    settings: Settings, plan: LaunchPlan, reader: black_box_reader.Reader | None, console: Console
) -> Metrics | None:
    """Only where a profile asks for it."""
    if "textfile" not in settings.metrics:
        return None
    from safelaunch.run import metrics

    info = {"job": plan.run_id, "profile": ",".join(settings.profiles), **metrics.versions()}
    return metrics.Metrics(str(settings.metrics["textfile"].value), plan, info, reader, console.degraded)


def _each(*listeners: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
    """All of them hear it."""

    def heard(verdict: Verdict) -> None:
        for tell in listeners:
            tell(verdict)

    return heard


def _reader(black_box: str | None, console: Console) -> black_box_reader.Reader | None:
    try:
        return black_box_reader.Reader(black_box) if black_box else None
    except (OSError, ValueError) as error:
        console.degraded(f"hangs are not watched for: {error}")
        return None


def _end_watch(settings: Settings, plan: LaunchPlan) -> EndWatch:
    limit = settings["hang_abort_after"]
    ends = settings["on_hang"] != "report"
    return EndWatch(ends, plan.shutdown_timeout, BUSY_LIMIT_S if limit is None else limit)


def _slow_watch(settings: Settings) -> SlowWatch:
    expect = settings.slow.get("expect_step")
    return SlowWatch(expect.value if expect is not None else None)


def _settled(group: WorkerGroup) -> bool:
    """Whether no rank is on its way out: its exit code would be worth waiting for."""
    return not any(leaving(worker) for worker in group.alive)

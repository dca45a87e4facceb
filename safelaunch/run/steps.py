"""The steps of a run, in the order of `pipeline.STEPS`, and what they hand on.

Each step imports what it needs when its turn comes. So the fork server, or the agent, imports torch while this process
loads the code for all that comes later.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.launch.signals import Signals
from safelaunch.model import SCHEMA_VERSION, LaunchPlan, Settings, Verdict
from safelaunch.model.hosts import host_name

if TYPE_CHECKING:
    from safelaunch.launch.stages import Outcome
    from safelaunch.launch.tree import Tree
    from safelaunch.run.outside import Outside
    from safelaunch.run.wiring import Parts

MAX_SLOTS = 256  # black box slots where the number of ranks is for the agent to find out (`gpu`, `auto`)


@dataclass
class Run:
    """One run, as far as it has come. Three fields are given; each step adds what later ones use."""

    settings: Settings
    signals: Signals
    argv: Sequence[str]
    plan: LaunchPlan = field(init=False)
    environ: dict[str, str] = field(init=False)  # what agent and ranks are started with
    remarks: list[str] = field(default_factory=list)  # to be said once there is somebody to say it
    black_box: str | None = None
    tree: Tree = field(init=False)
    parts: Parts = field(init=False)
    started: float = 0.0  # seconds since the epoch
    elapsed_s: float = 0.0
    outcome: Outcome = field(init=False)
    outside: Outside = field(init=False)
    speaks: bool = True  # for the job, to those outside of it

    @property
    def exit_code(self) -> int:
        """What safelaunch ends with: what the run came to, or the signal's code that a profile wants for it."""
        from safelaunch.run.exit_codes import wanted

        return wanted(self.outcome.exit_code, self.settings)

    @property
    def last_verdict(self) -> Verdict | None:
        """The verdict with which the run has ended badly."""
        outcome = self.outcome
        bad = outcome.verdicts and not outcome.succeeded and outcome.interrupted is None
        return outcome.verdicts[-1] if bad else None

    @property
    def stall_s(self) -> float:
        """Seconds for which a reader of ours may take nothing at the end; whoever has interrupted us waits for us."""
        from safelaunch.run import output

        return output.STALL_S if self.outcome.interrupted is None else output.INTERRUPTED_STALL_S


def look_at_platform(job: Run) -> None:
    """Only Linux has what a run needs. Without /proc this process becomes torchrun, and no other step comes."""
    from safelaunch.run import platform

    platform.require_linux()
    if not platform.has_proc():
        platform.become_torchrun(job.settings)


def make_plan(job: Run) -> None:
    """Settings become a plan and the environment of the ranks; run directory and scratch directory are made."""
    from safelaunch.launch import plan as planning
    from safelaunch.run import launch_facts
    from safelaunch.settings import computed, warm
    from safelaunch.settings.timeouts import rendezvous_wait

    job.signals.treat_as_terminating(str(job.settings["signals_to_handle"]).split(","))
    known = launch_facts.known(job.settings, os.environ, socket.gethostname())
    plan = planning.build(job.settings, os.environ)
    job.settings = computed.fill(job.settings, {**known, "run_dir": plan.run_dir, "run_id": plan.run_id})
    job.environ = job.settings.environment(os.environ)
    warmth = warm.start(job.settings, job.environ)
    cold = warmth if isinstance(warmth, str) else ""
    job.plan = dataclasses.replace(
        plan,
        env=job.settings.added,
        warm=None if isinstance(warmth, str) else warmth,
        rendezvous_timeout=rendezvous_wait(job.settings),
    )
    job.remarks += [f"cold start: {cold}"] if cold else []


def make_black_box(job: Run) -> None:
    """The file of the ranks' slots. A run without it has no heartbeats."""
    from safelaunch import black_box

    asked = str(job.settings["nproc_per_node"])
    path = os.path.join(job.plan.scratch_dir, "black_box")
    try:
        black_box.create(path, int(asked) if asked.isdecimal() else MAX_SLOTS)
    except OSError as error:
        missing = f"no heartbeats and no record of collectives: {path}: {error.strerror}"
        job.remarks.append(f"warning[SL902]: {missing}")
        return
    job.black_box = path


def start_tree(job: Run) -> None:
    """Guard and fork server, or agent, are started: they import torch from now on, and wait for `go`."""
    from safelaunch.launch import run_dir
    from safelaunch.launch.tree import Tree

    job.tree = Tree(job.plan, job.signals, job.environ)
    try:
        job.tree.start(job.black_box)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise run_dir.too_large(error) from error


def wire(job: Run) -> None:
    """The parts of the run are made, which is to load most of our code."""
    from safelaunch.run.wiring import Parts

    job.parts = Parts(job.settings, job.plan, job.environ, job.black_box)
    job.parts.notifier.leave_alone = job.tree.leave_alone
    job.parts.restarts.blamed.tell = job.tree.tell


def sweep(job: Run) -> None:  # noqa: ARG001  what others have left
    """What runs that were killed have left in memory is removed, in a thread."""
    from safelaunch.launch import scratch

    scratch.sweep_aside()


def write_start(job: Run) -> None:
    """run.json and env.txt, and what there is to say of the plan."""
    from safelaunch.run import record

    for line in job.plan.warnings:
        job.parts.console.say(line)
    record.of_start(job.settings, job.plan, job.argv, job.parts.console)
    for note in job.settings.notes:
        job.parts.console.finding(note)
    for line in job.remarks:
        job.parts.console.say(line)


def supervise(job: Run) -> None:
    """Checks, `go`, attempts, incidents and signals, until the last process has gone."""
    from safelaunch.launch.supervisor import Supervisor

    job.started = time.time()
    job.outcome = outcome = Supervisor(job.plan, job.signals, job.parts.stages(), job.tree).run()
    ranks = {worker.rank for worker in outcome.groups[-1].workers} if outcome.groups else set()
    if outcome.groups:
        outcome.preempted = job.parts.stops.outcome(outcome.groups[-1], outcome.interrupted)
    denied = job.parts.nodes.denied(ranks) if outcome.succeeded else None
    if denied is not None:
        outcome.succeeded = False
        outcome.verdicts.append(denied)


def hear_the_last(job: Run) -> None:
    """What ranks that ended soon had to say, before the scratch directory goes."""
    job.parts.start.wait()
    for group in job.outcome.groups[-1:]:
        job.parts.hearing.poll(group, last=True)
        job.parts.note_steps(group)
    shutil.rmtree(job.plan.scratch_dir, ignore_errors=True)
    job.elapsed_s = round(time.time() - job.started, 3)


def tell_end(job: Run) -> None:
    """The last words of the run: what was slow, what could not be ended, and the verdict."""
    outcome, parts = job.outcome, job.parts
    for line in parts.slow.summary():
        parts.console.say(line)
    if outcome.abandoned:
        held = f"processes that even SIGKILL does not end (stuck in the kernel): {list(outcome.abandoned)}"
        parts.console.say(held)
    if outcome.preempted is not None and outcome.exit_code == outcome.preempted.exit_code:
        from safelaunch.run.stops import stopped

        parts.console.finding(stopped(outcome.preempted, job.exit_code))
    elif outcome.verdicts and not outcome.succeeded:
        last = outcome.verdicts[-1]
        said = last if parts.restarts.blamed.left else parts.nodes.as_said_here(last)
        parts.console.last_verdict(said, parts.incidents.folder_of(last), job.exit_code)
    elif outcome.interrupted is not None and (told := parts.hangs.last_word(exit_code=outcome.exit_code)) is not None:
        # Why somebody had enough of it.
        parts.console.last_verdict(told, parts.hangs.folder, job.exit_code)


def tell_outside(job: Run) -> None:
    """The pod, the scheduler, the list of bad nodes and the commands of the profile are told, beside what follows."""
    from safelaunch.run.outside import Outside, as_verdict

    outcome, parts = job.outcome, job.parts
    job.speaks = parts.speaks
    last, report = job.last_verdict, outcome.report
    job.outside = Outside(job.settings, os.environ, socket.gethostname(), parts.console.say)
    job.outside.begin(last, report, job.exit_code, speaks=job.speaks, left=parts.restarts.blamed.left)
    if report is not None and report.refused:
        last = as_verdict(report)
    if last is not None:
        parts.notifier.verdict_once(last)
    if outcome.succeeded and outcome.preempted is None and parts.progress is not None:
        parts.progress.end()
    parts.events.end(outcome, job.exit_code)
    if parts.metrics is not None:
        parts.metrics.end()
    result = {"exit_code": outcome.exit_code, "interrupted": outcome.interrupted, "elapsed_s": job.elapsed_s}
    parts.notifier.end(last, **result, attempts=len(outcome.groups))


def say_goodbye(job: Run) -> None:
    """To the other nodes of the job."""
    job.parts.nodes.close()


def write_result(job: Run) -> None:
    """result.json, and the same for `--json`."""
    from safelaunch.codec import to_json
    from safelaunch.run import record

    outcome, parts = job.outcome, job.parts
    document = {
        "schema_version": SCHEMA_VERSION,
        "run_id": job.plan.run_id,
        "run_dir": job.plan.run_dir,
        "exit_code": outcome.exit_code,
        "exit_status": job.exit_code,
        "interrupted": outcome.interrupted,
        "preempted": to_json(outcome.preempted) if outcome.preempted is not None else None,
        "started": job.started,
        "elapsed_s": job.elapsed_s,
        "steps": parts.history.steps,
        "attempts": to_json(outcome.groups),
        "findings": to_json([*(outcome.report.findings if outcome.report else ()), *parts.findings.heard]),
        "verdicts": to_json([*parts.hangs.slow, *parts.slow.all_verdicts, *outcome.verdicts]),
        "abandoned_pids": list(outcome.abandoned),
        "spare": parts.was_spare,
        "left_out": parts.restarts.blamed.left,
    }
    if parts.nodes.met.rounds:
        document |= {"host": host_name(socket.gethostname()), "hosts": [*parts.nodes.met.hosts]}
        document |= {"rounds": [*parts.nodes.met.rounds]}
    record.of_result(document, job.plan.run_dir, job.settings["json"], parts.console, job.stall_s)


def write_result_of_job(job: Run) -> None:
    """result.json of the job, above the folders of its nodes."""
    from safelaunch.run import job_result

    try:
        job_result.write(job.plan.run_dir, job.parts.nodes.met)
    except OSError as error:
        job.parts.console.degraded(f"the result of the job cannot be written: {error.filename}: {error.strerror}")


def remember(job: Run) -> None:
    """How the run ended, for the next check of this node and for later runs; then the pages, for which nobody waits."""
    job.parts.checks.remember(job.outcome.last_code)
    if job.speaks:
        hosts = [*job.parts.nodes.met.hosts]
        job.parts.history.ended(job.outcome, job.last_verdict, job.exit_code, job.elapsed_s, hosts)
    job.parts.incidents.write_pages()


def requeue(job: Run) -> None:
    """Whoever was told has had the time for it; then Slurm is asked for another try, which ends this one."""
    outcome = job.outcome
    job.parts.notifier.finish(interrupted=outcome.interrupted is not None)
    job.outside.finish(interrupted=outcome.interrupted is not None)
    if job.speaks or (outcome.report is not None and outcome.report.refused):
        job.outside.requeue(job.last_verdict, outcome.report, outcome.exit_code)


def finish_speaking(job: Run) -> None:
    """Nothing that was said is lost, unless its reader has stopped to read."""
    job.parts.console.finish(job.stall_s)

"""What a run is wired to, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from safelaunch.codes import EXIT_OK, EXIT_PROFILE, EXIT_REFUSED, EXIT_USAGE, Trait, has
from safelaunch.model import AgentEnd, Incident, Preempted, PreflightReport, Verdict, WorkerGroup


@dataclass(frozen=True)
class Stages:
    """What is wired into a run.

    `preflight` runs in a thread beside the agent's import of torch. `suspect` takes the evidence that will not wait
    (stacks of the living), `conclude` the rest, and judges; `settled` is false while the exit code of a rank is worth
    waiting for. `watch` is called every `WATCH_S` while ranks live and nothing has failed, and gives an incident when
    it is time to end a hang. `infra` judges the end of an agent. `say` prints one line, `notice` one with a verdict
    that is not the end, and what happens next. `started` is called when all ranks of an attempt have been started; it
    must return at once. `address` is where the supervisors of other nodes find this one, `interrupted` is told of a
    signal that ends the run. `events` are what is told of the agent's other events, by their names. `asks_to_stop` has
    the ranks told of a signal by `should_stop()`, and says whether they will be; `overdue` whether they have had their
    time for it. `reason` says why other nodes start anew, where that is known. `stops` says whether the latest verdict
    ends the run, whatever restarts are left.
    """

    preflight: Callable[[], PreflightReport]
    suspect: Callable[[Incident, WorkerGroup], Any]
    settled: Callable[[WorkerGroup], bool]
    conclude: Callable[[Incident, WorkerGroup, Any], Verdict]
    watch: Callable[[WorkerGroup], Incident | None]
    infra: Callable[[AgentEnd], Verdict]
    say: Callable[[str], None]
    notice: Callable[[Verdict, str], None]
    started: Callable[[WorkerGroup], None] = lambda _: None
    address: Callable[[], Mapping[str, Any] | None] = lambda: None
    events: Mapping[str, Callable[..., None]] = field(default_factory=dict)
    reason: Callable[[], Verdict | None] = lambda: None
    stops: Callable[[], bool] = lambda: False
    interrupted: Callable[[int], None] = lambda _: None
    asks_to_stop: Callable[[int, WorkerGroup], bool] = lambda *_: False
    overdue: Callable[[], bool] = lambda: False


@dataclass
class Outcome:
    """What a run came to. `groups` holds one worker group an attempt, with each worker's exit."""

    report: PreflightReport | None = None
    groups: list[WorkerGroup] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    interrupted: int | None = None
    preempted: Preempted | None = None
    succeeded: bool = False
    abandoned: tuple[int, ...] = ()

    @property
    def last_code(self) -> str:
        """The code with which the run ended; empty for success."""
        if self.report is not None and self.report.refused:
            return next(str(finding.code) for finding in self.report.findings if finding.severity == "error")
        return str(self.verdicts[-1].code) if self.verdicts and not self.succeeded else ""

    @property
    def exit_code(self) -> int:
        """What safelaunch exits with."""
        if self.preempted is not None and (self.succeeded or not self.preempted.stopped):
            return self.preempted.exit_code
        if self.interrupted is not None:
            return 128 + self.interrupted
        if self.report is not None and self.report.refused:
            at_fault = {finding.code for finding in self.report.findings if finding.severity == "error"}
            if all(has(code, Trait.COMMAND) for code in at_fault):
                return EXIT_USAGE
            return EXIT_PROFILE if {code[:3] for code in at_fault} == {"SL2"} else EXIT_REFUSED
        if self.succeeded:
            return EXIT_OK
        return self.verdicts[-1].exit_code

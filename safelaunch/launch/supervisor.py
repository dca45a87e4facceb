"""The supervisor's loop: it owns every deadline of a run, because the agent can be blocked for minutes.

Signals, the agent's events and timers come together in one `select`; every decision is made here, in one thread.
What to check, what evidence to take and what it means is wired in by `run/` as `Stages`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from safelaunch import procfs
from safelaunch.launch.blocked import Blocked
from safelaunch.launch.journal import Journal
from safelaunch.launch.mishaps import Mishaps
from safelaunch.launch.phases import DECIDED, Phase
from safelaunch.launch.remains import Remains
from safelaunch.launch.signals import FORWARDED, Signals
from safelaunch.launch.stages import Outcome, Stages
from safelaunch.launch.stopped import Stopped
from safelaunch.launch.timers import Timers
from safelaunch.launch.tree import Tree
from safelaunch.model import FORK_SERVER, AgentEnd, Exit, Incident, LaunchPlan, Verdict, WorkerGroup, WorkerProcess

SETTLE_S = 0.15  # lets the consequences of a death reach the other ranks before the case is closed
SETTLE_LIMIT_S = 0.9  # ... and waits until then for the exit code of a rank that is shutting down
WATCH_S = 0.25  # how often the ranks' pulses are read
HANG_TERM_S = 5.0  # what hung ranks get to end: a handler in Python cannot run in a rank that is stuck below Python
NOTICE_S = 1.0  # a verdict is told at once when ending the peers takes longer than this
AGENT_END_S = 5.0  # what the agent may take to end once its workers are gone


class Supervisor:
    """One run, from `go` to the last process. Its tree has been started."""

    def __init__(self, plan: LaunchPlan, signals: Signals, stages: Stages, tree: Tree) -> None:
        self._plan = plan
        self._signals = signals
        self._stages = stages
        self._journal = Journal(os.path.join(plan.run_dir, "agent.jsonl"))
        self._safely = Mishaps(self._journal, self.on_degraded).safely
        self._tree = tree
        self._outcome = Outcome()
        self._group: WorkerGroup | None = None
        self._phase = Phase.CHECKING
        self._incident: Incident | None = None  # the latest one
        self._evidence: Any = None
        self._agent_said: AgentEnd | None = None
        self._timers = Timers()
        self._after = self._timers.after
        self._blocked = Blocked(self._after, self._abandon_agent, stages.say, plan)
        self._on_event: dict[str, Callable[..., None]] = {
            "group": self.on_group,
            "worker": self.on_worker,
            "exit": self.on_exit,
            "reaped": self._blocked.on_reaped,
            "stopping": self.on_stopping,
            "failed": self.on_failed,
            "succeeded": self.on_succeeded,
            "agent": self.on_agent,
            "cold": self.on_cold,
            "degraded": self.on_degraded,
            **stages.events,
        }
        self._of_sigterm: tuple[int, ...] = ()  # exit codes of ranks that end by it, while others are to stop at a step
        self._received = b""
        self._remains = Remains(tree, stages.say, lambda: self._step(0.02))
        self._stopped = Stopped(tree.around_ranks, stages.say)
        self._stage: threading.Thread | None = None
        self._stage_done, self._stage_pipe = os.pipe()

    # ------------------------------------------------------------------------------------------- the loop

    def run(self) -> Outcome:
        """Run to the end; never raises for anything that the job does."""
        self._stage = threading.Thread(target=self._preflight, daemon=True)
        self._stage.start()
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            selector.register(self._signals.fd, selectors.EVENT_READ, self._on_signals)
            selector.register(self._tree.events, selectors.EVENT_READ, self._on_agent_events)
            selector.register(self._stage_done, selectors.EVENT_READ, self._on_preflight)
            while self._tree.agent_exit is None and not self._remains.killed:
                self._step()
            self._on_agent_exit()
            self._timers.clear()
            self._remains.settle(self._outcome.succeeded, self._plan.shutdown_timeout)
        self._outcome.abandoned = self._remains.abandoned
        self._tree.reap()  # where PID 1 reaps nobody, each would stay as a zombie
        self._tree.guard.dismiss()
        return self._outcome

    def _step(self, limit: float | None = None) -> None:
        for key, _ in self._selector.select(self._timers.wait(limit)):
            if key.fd in self._selector.get_map():  # another action may have read it to its end
                self._safely(key.data)
        for action in self._timers.take():
            self._safely(action)

    # ------------------------------------------------------------------------------------------ preflight

    def _preflight(self) -> None:
        self._outcome.report = self._stages.preflight()
        os.write(self._stage_pipe, b"\n")

    def _on_preflight(self) -> None:
        os.read(self._stage_done, 1)
        self._stage = None
        report = self._outcome.report
        assert report is not None
        self._journal.write("preflight", refused=report.refused, elapsed_s=report.elapsed_s)
        self._on_children()  # what had to wait
        if self._phase is Phase.ENDING:
            return
        if report.refused:
            self._phase = Phase.ENDING
            self._tree.signal_agent(signal.SIGKILL)
        else:
            self._phase = Phase.STARTING
            self._tree.let_go(self._stages.address())

    # -------------------------------------------------------------------------------------- agent's events

    def _on_agent_events(self) -> None:
        try:
            chunk = os.read(self._tree.events, 1 << 16)
        except BlockingIOError:
            return  # a signal had them read before their turn
        if not chunk:
            self._selector.unregister(self._tree.events)
            return
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            name = event.pop("event")
            self._journal.write(name, **event)
            handle = self._on_event.get(name)
            if handle is not None:  # others are for the journal alone
                self._safely(handle, **event)  # each for itself: what comes behind it must not be lost

    def on_group(self, attempt: int, world_size: int, local_world_size: int) -> None:
        """The workers of an attempt are about to be started."""
        if self._group is not None:
            self._outcome.groups.append(self._group)
            what = f"restarting: attempt {attempt} of {self._plan.torchrun['max_restarts']}"
            if attempt == self._group.attempt:  # nodes came or went: torch counts no restart
                what = "starting anew, which counts as no restart"
            # Else nodes came or went, or another one's ranks had failed.
            verdict = self._outcome.verdicts[-1] if self._phase is Phase.CONCLUDED else self._stages.reason()
            self._stages.notice(verdict, what) if verdict else self._stages.say(what)
        self._group = WorkerGroup(attempt, world_size, local_world_size)
        self._blocked.begins()
        if self._phase is not Phase.ENDING:
            self._phase = Phase.RUNNING
            self._timers.clear()
        self._stopped.look_on(self._after)

    def on_worker(self, logs: list[str], **fields: Any) -> None:
        """A worker was started."""
        assert self._group is not None
        worker = WorkerProcess(**fields, logs=tuple(logs))
        self._group = dataclasses.replace(self._group, workers=(*self._group.workers, worker))
        self._tree.watch_session(worker.pid)
        if self._group.started:
            self._after(WATCH_S, self._watch)
            self._after(0.0, partial(self._stages.started, self._group))
        if self._outcome.interrupted is not None:
            self._tree.signal_workers((worker,), self._outcome.interrupted)

    def on_exit(self, pid: int, code: int, t: float) -> None:
        """A worker has ended; the agent does not act on a failure before `release`."""
        assert self._group is not None
        workers = tuple(dataclasses.replace(w, exit=Exit(code, t)) if w.pid == pid else w for w in self._group.workers)
        self._group = dataclasses.replace(self._group, workers=workers)
        if self._phase is Phase.ENDING:
            if not self._group.left:
                self._end_agent()
        elif self._phase is Phase.RUNNING and code in self._of_sigterm:
            self._end_by(signal.SIGTERM)
        elif self._phase is Phase.RUNNING and code != 0:
            rank = next(worker.rank for worker in workers if worker.pid == pid)
            self._open(Incident("exit", self._group.attempt, (rank,), t))
        elif self._phase is Phase.CONCLUDED:
            self._blocked.look_at(self._group)

    def on_stopping(self) -> None:
        """Torch elastic is about to end the workers. Where none of them has failed, it is for a reason of its own: the
        agent got a signal or has failed, or nodes came or went."""
        self._blocked.acts()
        if self._phase is Phase.RUNNING:
            self._phase = Phase.REGROUPING
            self._after(self._plan.shutdown_timeout, self._kill_group)

    def on_failed(self, **event: Any) -> None:
        """The agent gave up; its process ends by itself."""
        self._agent_said = AgentEnd(**event, workers_started=self._group is not None)
        self._after(AGENT_END_S, self._abandon_agent)

    def on_succeeded(self) -> None:
        """All workers of all nodes ended with 0."""
        self._outcome.succeeded = True
        self._after(AGENT_END_S, self._abandon_agent)

    def on_agent(self, pid: int) -> None:
        """The fork server has forked the agent."""
        self._tree.agent_is(pid)

    def on_cold(self, reason: str) -> None:
        """The ranks cannot be forked, and are started as torchrun starts them: each imports torch for itself."""
        if reason:
            self._stages.say(f"cold start: {reason}")
        if self._tree.agent is None and self._tree.agent_exit is None:
            self._tree.start_agent()

    def on_degraded(self, missing: str) -> None:
        """A part of the watching is missing; the run goes on."""
        self._stages.say(f"warning[SL902]: {missing}")

    # ---------------------------------------------------------------------------------------- an incident

    def _open(self, incident: Incident) -> None:
        assert self._group is not None
        self._phase = Phase.INCIDENT
        self._incident = incident
        self._evidence = None
        self._journal.write("incident", kind=incident.kind, ranks=incident.ranks)
        # Before anything that may fail: without a conclusion the ranks would wait for their end for ever.
        self._after(max(0.0, incident.t + SETTLE_S - time.monotonic()), self._conclude_once_settled)
        self._evidence = self._stages.suspect(incident, self._group)

    def _conclude_once_settled(self) -> None:
        assert self._incident is not None
        assert self._group is not None
        if time.monotonic() < self._incident.t + SETTLE_LIMIT_S and not self._stages.settled(self._group):
            self._after(0.02, self._conclude_once_settled)
        else:
            self._conclude()

    def _conclude(self) -> None:
        assert self._incident is not None
        assert self._group is not None
        verdict = self._lost_with_fork_server() or self._stages.conclude(self._incident, self._group, self._evidence)
        self._journal.write("verdict", code=verdict.code, culprits=verdict.culprit_ranks, summary=verdict.summary)
        self._outcome.verdicts.append(verdict)
        self._tree.tell_end(verdict.exit_code, f"{verdict.code}: {verdict.summary}")
        self._phase = Phase.CONCLUDED
        hangs = self._incident.kind == "hang"
        stops = self._stages.stops() or (hangs and not self._plan.restart_hangs)
        grace = min(self._plan.shutdown_timeout, HANG_TERM_S) if hangs else self._plan.shutdown_timeout
        if hangs or stops:  # torch elastic sees no reason to act where nobody has failed: give it one
            self._tree.signal_workers(self._group.alive, signal.SIGTERM)
        if stops:
            self._phase = Phase.ENDING
            self._tree.tell("hold")
            self._after(grace, self._remains.kill)
            if not self._group.left:
                self._end_agent()
            return
        self._tree.tell("release")
        self._tree.wake()
        # Those that have failed and live on do no work, and torch elastic would never learn of them.
        failed = tuple(worker for worker in self._group.alive if worker.rank in self._incident.ranks)
        self._tree.signal_workers(failed, signal.SIGKILL)
        self._blocked.look_at(self._group)
        self._after(NOTICE_S, self._tell_what_ends)
        self._after(grace, self._kill_group)
        if self._group.attempt >= self._plan.torchrun["max_restarts"]:
            self._after(grace + AGENT_END_S, self._abandon_agent)

    def _lost_with_fork_server(self) -> Verdict | None:
        """The verdict where ranks have died because the fork server had: that says nothing of them."""
        assert self._group is not None
        if self._stage is None:
            self._tree.reap()
        ended = self._tree.died_with_fork_server(self._group)
        return self._stages.infra(AgentEnd(FORK_SERVER, exit=ended, workers_started=True)) if ended else None

    def _watch(self) -> None:
        if self._phase is not Phase.RUNNING or self._group is None or not self._group.alive:
            return
        self._after(WATCH_S, self._watch)  # first: a fault of ours in one look must not end the watch
        if self._stages.overdue():
            self._end_by(signal.SIGTERM, late=True)
            return
        if self._stopped.hides_ends:
            return  # what looks like a hang may be none, and who waits for the agent's store waits in vain
        incident = self._stages.watch(self._group)
        if incident is not None:
            self._open(incident)

    def _tell_what_ends(self) -> None:
        if self._group is not None and self._group.alive:
            self._stages.notice(self._outcome.verdicts[-1], "ending the other ranks")

    def _kill_group(self) -> None:
        if self._group is not None:  # torch elastic waits 30 s after a failure, whatever we say (pytorch PR 192815)
            self._tree.signal_workers(self._group.alive, signal.SIGKILL)

    def _abandon_agent(self) -> None:
        self._tree.signal_agent(signal.SIGKILL)

    # -------------------------------------------------------------------------------------------- signals

    def _on_signals(self) -> None:
        for signum in self._signals.pending():
            if signum == signal.SIGCHLD:
                self._on_children()
            elif signum in self._signals.terminating:
                self._interrupt(signum)
            elif signum in FORWARDED and self._group is not None:
                self._stages.asks_to_stop(signum, self._group)
                self._tree.forward(self._group.alive, signum)

    def _on_children(self) -> None:
        """Processes below us have ended, have been stopped, or go on."""
        # While a stage runs, its own children are its own to wait for.
        if self._stage is None:
            self._tree.reap()
            self._keep_an_agent()
        elif self._tree.agent is None:
            self._keep_an_agent()
        elif procfs.is_gone(self._tree.agent):
            self._tree.agent_exit = Exit(-signal.SIGKILL, time.monotonic())
        self._stopped.look_on(self._after)

    def _keep_an_agent(self) -> None:
        server = self._tree.fork_server
        if self._tree.agent is None and self._tree.agent_exit is None and (server is None or procfs.is_gone(server)):
            self._drain()  # it may have said why, or have made the agent before
            self.on_cold("the fork server has ended" if self._tree.agent is None else "")

    def _interrupt(self, signum: int) -> None:
        self._journal.write("signal", signal=signal.Signals(signum).name)
        if self._outcome.interrupted is not None:
            if signum in (signal.SIGINT, signal.SIGQUIT):
                self._remains.kill()
            return  # schedulers repeat themselves; only a person at a keyboard means "now"
        group = self._group if self._phase is Phase.RUNNING and signum == signal.SIGTERM else None
        if group is not None and self._stages.asks_to_stop(signum, group):
            if not self._of_sigterm:
                self._of_sigterm = (-signum, 128 + signum)
                self._tree.forward(group.alive, signum)  # to scripts that catch it, too
            return
        self._end_by(signum)

    def _end_by(self, signum: int, late: bool = False) -> None:
        """End the ranks with this signal; those that are `late` have had it, and their time."""
        self._drain()  # before there is a rank the agent has told of its group: none is to be forgotten
        decided = self._phase in DECIDED
        self._phase = self._phase if self._phase is Phase.OVER else Phase.ENDING
        self._outcome.interrupted, group = signum, self._group
        self._stages.interrupted(signum)  # before the ranks of other nodes fail for it
        self._timers.clear()
        if group is None or not group.left or decided:
            self._end_agent()
            return
        grace, name = 0.0 if late else self._plan.shutdown_timeout, signal.Signals(signum).name
        told = f"passed on to {group.left} ranks, which have {grace:g} s (Ctrl-C again ends them now)"
        self._stages.say(f"{name}: {f'{group.left} ranks have not stopped in time' if late else told}")
        self._tree.tell_end(128 + signum, f"{name} ended it")
        # The agent must neither forward the signal a second time nor restart anything.
        self._tree.tell("hold")
        self._tree.wake()
        if not late:
            self._tree.signal_workers(group.alive, signum)
        self._after(grace, self._remains.kill)

    def _end_agent(self) -> None:
        # Before it has started workers the agent has no handler: this ends it at once, wherever it is blocked.
        self._tree.signal_agent(signal.SIGTERM if self._group is not None else signal.SIGKILL)
        self._after(AGENT_END_S, self._abandon_agent)

    # ------------------------------------------------------------------------------------------------ end

    def _drain(self) -> None:
        """Read what the agent, or the fork server, has written so far; others may have that pipe open, too."""
        events = self._tree.events
        while not self._remains.killed and any(key.fd == events for key, _ in self._selector.select(0)):
            self._safely(self._on_agent_events)

    def _on_agent_exit(self) -> None:
        self._drain()
        if self._group is not None:
            self._outcome.groups.append(self._group)
        outcome = self._outcome
        if self._phase is Phase.INCIDENT:
            self._safely(self._conclude)  # the agent was faster than we: its gate had opened by itself
        if not outcome.succeeded and self._phase not in DECIDED:
            end = self._agent_said or AgentEnd(exit=self._tree.agent_exit, workers_started=self._group is not None)
            outcome.verdicts.append(self._stages.infra(end))
        self._phase = Phase.OVER

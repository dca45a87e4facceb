"""Why the ranks are to stop, and at which call of `safelaunch.should_stop()` all of them do.

A thread of its own looks for reasons, and agrees over the nodes: the supervisor's loop may be taking evidence.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from dataclasses import dataclass

from safelaunch import black_box_reader, stop_words
from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import Message
from safelaunch.codes import EXIT_INFRASTRUCTURE, EXIT_SIGINT
from safelaunch.durations import text
from safelaunch.model import Finding, LaunchPlan, Preempted, WorkerGroup
from safelaunch.pulse import LARGEST
from safelaunch.run.console import Console
from safelaunch.run.job_end import JobEnd
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.own_faults import contained
from safelaunch.run.pulses import pulses_of
from safelaunch.run.stop_nodes import StopNodes
from safelaunch.watch.rhythm import Rhythm

TICK_S, BUSY_S = 0.25, 0.02
OUTSIDE_S = 1.0  # between two looks for the file
FILE = "stop"  # in the run directory: `safelaunch stop` makes it
ANSWER = "stopping.json"  # ... and reads this
COMMAND = "safelaunch stop"


@dataclass(frozen=True)
class _Wanted:
    """Why the ranks are to stop, and since when (seconds since the epoch)."""

    by: str
    t: float


class Stops:
    """All of it in one run. Nothing is done, and nothing costs, before a rank has called `should_stop()`.

    Args:
        plan: of the run.
        reader: of the black box, None where there is none.
        console: of the run.
        nodes: the others of the job.
        end: when the run's time ends.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        reader: black_box_reader.Reader | None,
        console: Console,
        nodes: JobNodes,
        end: JobEnd,
    ) -> None:
        self._plan, self._reader, self._console, self._end = plan, reader, console, end
        self._inbox = nodes.inboxes.stop
        self._group: WorkerGroup | None = None
        self._words = stop_words.Ranks([])
        self._ranks: tuple[int, ...] = ()  # the attempt, and a pid: of others nothing is agreed
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.wanted: _Wanted | None = None
        self._call = 0  # the first that returns True, once it is agreed
        self._deadline: float | None = None  # CLOCK_MONOTONIC
        self._refused = False
        self._link: Link | None = None
        self._nodes = StopNodes(self._hold, lambda: self._words.limit(stop_words.GO_ON), self._agreed)
        self._rhythm = Rhythm()

    # ------------------------------------------------------------------------------ from the supervisor's loop

    def poll(self, group: WorkerGroup) -> None:
        """These are the ranks."""
        with contained(self._console.degraded, "should_stop() stays False"):
            self._poll(group)
            return
        self._reader = None

    def _poll(self, group: WorkerGroup) -> None:
        self._group = group
        if self._reader is None:
            return
        self._words = self._reader.stop_words((worker.local_rank, worker.pid) for worker in group.workers)
        if self._thread is None and self._words.largest(stop_words.CALLS):
            self._thread = threading.Thread(target=self._run, name="safelaunch-stops", daemon=True)
            self._thread.start()
            threading.Thread(target=self._look_outside, name="safelaunch-stop-file", daemon=True).start()

    def ask(self, signum: int, group: WorkerGroup) -> bool:
        """A signal has come: whether these ranks are told of it by `should_stop()`. SIGUSR1 and SIGUSR2 are the
        script's where a rank has a handler of its own for them. After SIGTERM there is a deadline."""
        with contained(self._console.degraded, "a signal is passed on as it is"):
            return self._ask(signum, group)
        return False

    def _ask(self, signum: int, group: WorkerGroup) -> bool:
        self.poll(group)  # they may have called it since
        callers = [caught for caught in self._words.each(stop_words.CAUGHT) if caught]
        if not callers or self._refused or self.overdue:
            return False
        if signum != signal.SIGTERM and not all(caught >> signum & 1 for caught in callers):
            return False
        if signum == signal.SIGTERM and self._deadline is None:
            self._deadline = time.monotonic() + self._plan.grace
        self._want(signal.Signals(signum).name)
        return True

    @property
    def overdue(self) -> bool:
        """Whether the ranks have had their time to stop by themselves, or cannot be told to."""
        asked_by_signal = self._deadline is not None
        return asked_by_signal and (self._refused or time.monotonic() > (self._deadline or 0.0))

    def outcome(self, group: WorkerGroup, interrupted: int | None) -> Preempted | None:
        """What came of it, once the ranks have ended; None where none was to stop, or none has been told."""
        wanted = self.wanted
        if wanted is None or self._reader is None or interrupted not in (None, signal.SIGTERM):
            return None
        words = self._reader.stop_words((worker.local_rank, worker.pid) for worker in group.workers)
        told = min(words.largest(stop_words.TOLD), LARGEST)
        if not told and interrupted is None:
            return None
        code = EXIT_SIGINT if wanted.by == COMMAND else EXIT_INFRASTRUCTURE
        return Preempted(wanted.by, wanted.t, told or None, interrupted is None, code)

    # ------------------------------------------------------------------------------------------- the threads

    def _want(self, by: str) -> None:
        with self._lock:
            if self.wanted is not None:
                return
            self.wanted = _Wanted(by, time.time())
        self._console.aside(f"{by}: the ranks are asked to stop at a step")

    def _run(self) -> None:
        while True:
            with contained(self._console.degraded, "should_stop() stays False"):
                self._round()
                continue
            self._refused = True
            self._words.limit(stop_words.GO_ON)
            return

    def _round(self) -> None:
        group = self._group
        ranks = (group.attempt, *(worker.pid for worker in group.workers[:1])) if group is not None else ()
        if ranks != self._ranks:  # torch need not count what starts anew
            self._ranks, self._call, self._rhythm = ranks, 0, Rhythm()
            self._nodes.restart()
        with contextlib.suppress(queue.Empty):
            self._take_in(*self._inbox.get(timeout=BUSY_S if self._nodes.busy or self._is_unheard else TICK_S))
            while True:
                self._take_in(*self._inbox.get_nowait())
        if group is None:
            return
        words, now = self._words, time.monotonic()
        if self.wanted is None:
            self._look_for_reasons(group, words, now)
        if self._call:
            words.limit(self._call)
        elif self.wanted is not None and not self._refused:
            self._agree(group, self.wanted.by, now)
        if self._link is not None:
            self._nodes.poll(self._link, now)

    @property
    def _is_unheard(self) -> bool:
        return self.wanted is not None and not self._call and not self._refused

    def _look_for_reasons(self, group: WorkerGroup, words: stop_words.Ranks, now: float) -> None:
        asked = words.largest(stop_words.ASKED)
        if asked in set(signal.Signals):
            self._want(f"{signal.Signals(asked).name} at a rank")
        calls = min(words.each(stop_words.CALLS), default=0)
        self._rhythm.look(min(calls, LARGEST), self._saving_since(group), now)
        left = self._end.left_s(self._is_first)
        if left is not None and self._rhythm.known and left < self._rhythm.needed_s(self._end.whole_s):
            self._want(f"the time of the job ends in {text(round(max(0.0, left)))}")

    @property
    def _is_first(self) -> bool:
        """Whether this node speaks for all where one is enough."""
        return self._link is None or self._link.peers.is_hub

    def _saving_since(self, group: WorkerGroup) -> float:
        phases = (phase for pulse in pulses_of(self._reader, group.alive).values() for phase in pulse.phases)
        return min((since for name, since, *_ in phases if name.startswith("checkpoint")), default=0.0)

    def _agree(self, group: WorkerGroup, by: str, now: float) -> None:
        if group.world_size == group.local_world_size:
            self._agreed(self._hold() + 1, by)
        elif self._link is not None:
            self._nodes.ask(self._link, by, now)
        elif self._nodes.waited(now):
            self._agreed(0, "no link to the other nodes")

    def _hold(self) -> int:
        """Hold the ranks back where they call next; returns how many calls they have made."""
        self._words.limit(stop_words.HELD)
        time.sleep(stop_words.SETTLE_S)
        return min(self._words.largest(stop_words.CALLS), LARGEST)

    def _agreed(self, call: int, by: str) -> None:
        if not call:
            self._words.limit(stop_words.GO_ON)
            if not self._refused:
                self._console.degraded(f"should_stop() stays False: {by}")
            self._refused = True
            return
        self._want(by)
        if self._call:
            return
        self._call = call
        self._words.limit(call)
        self._console.aside(f"should_stop() is True on all ranks from call {call} on")
        self._answer({"call": call, "by": by})

    def _take_in(self, link: Link, node: int, message: Message | None) -> None:
        self._link = link
        if message is not None:
            self._nodes.take_in(link, node, message)

    def _look_outside(self) -> None:
        """For the file of `safelaunch stop`: a file system may keep us waiting."""
        path = os.path.join(self._plan.run_dir, FILE)
        while self.wanted is None:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_uid in (os.geteuid(), 0):
                    self._want(COMMAND)
            time.sleep(OUTSIDE_S)

    def _answer(self, document: dict[str, object]) -> None:
        from safelaunch import files

        with contextlib.suppress(OSError):
            files.write_json(os.path.join(self._plan.run_dir, ANSWER), document)


def stopped(told: Preempted, exit_code: int) -> Finding:
    """The run has stopped at a step, because it was asked to.

    Example:
        note[SL606]: stopped at call 812 of should_stop() on all ranks (SIGUSR1 asked for it); exit 75: run it again

    How it was concluded: something asked for a stop: SIGTERM, or SIGUSR1 or SIGUSR2 that no rank catches itself;
    the end of the job's time, less what a step and a save take; `safelaunch stop RUN`. From the same call on,
    `safelaunch.should_stop()` was True on all ranks of all nodes, and they ended by themselves. Where they did
    not end before the deadline, they were ended, and the line says so.

    What to do: start it again, and it goes on from its checkpoint. The exit code is 75, which schedulers can take
    as the word for that; after `safelaunch stop` it is 130, as somebody wanted it to end. `preempted` in
    result.json has the reason and the call.

    What it is not: a run that came to its end before that call (exit 0), or one whose script does not call
    `should_stop()`: it gets the signal itself (SL603, 143).
    """
    if not told.stopped:
        what = f"ended at the deadline after {told.by}"
        what += f", {'in' if told.call else 'before'} call {told.call} of should_stop()" if told.call else ""
    else:
        what = f"stopped at call {told.call} of should_stop() on all ranks ({told.by} asked for it)"
    more = ": run it again" if told.exit_code == EXIT_INFRASTRUCTURE else ""
    return Finding(code="SL606", severity="note", summary=f"{what}; exit {exit_code}{more}")

"""Has some steps of the ranks profiled, when `safelaunch trace` asks for it in the run directory.

The command says what it wants in `trace`, and this supervisor answers in `tracing.json`: first how far each rank is, by
which the command chooses the step, then how far each is with the trace. A thread of its own does it: it looks once a
second whether there is such a file, and a file system may keep it waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from safelaunch import black_box_reader, files, regular, trace_words
from safelaunch.codec import ShapeError, checked
from safelaunch.evidence import cupti
from safelaunch.evidence.traces import FOLDER as FOLDER
from safelaunch.model import LaunchPlan, WorkerGroup, WorkerProcess
from safelaunch.run.console import Console
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.own_faults import contained

FILE = "trace"  # in the run directory: `safelaunch trace` makes it
ANSWER = "tracing.json"  # ... and reads this
IDLE_S, BUSY_S = 1.0, 0.05
TELL_S = 0.25  # between two answers that differ in steps alone
PACE_S = 0.5  # by which the pace of the ranks is taken
MOST = 1 << 20
MOST_STEPS = 1000
STATES = ("waiting", "recording", "written", "failed", "missed")
ENDED = "ended"


@dataclass(frozen=True)
class Request:
    """What the command wants. `first` is 0 while it waits to know how far the ranks are."""

    number: int
    count: int
    until: float  # seconds since the epoch
    ranks: tuple[int, ...] | None = None  # None: all
    first: int = 0
    by: int = trace_words.STEPS


class Traces:
    """All traces of one run; nothing is done before one is asked for.

    Args:
        plan: of the run.
        reader: of the black box, None where there is none.
        console: of the run.
        nodes: the others of the job: their clocks are compared.
    """

    def __init__(
        self, plan: LaunchPlan, reader: black_box_reader.Reader | None, console: Console, nodes: JobNodes
    ) -> None:
        self._plan, self._reader, self._console, self._nodes = plan, reader, console, nodes
        self._group: WorkerGroup | None = None
        self._thread: threading.Thread | None = None
        self._at: _Trace | None = None

    def poll(self, group: WorkerGroup) -> None:
        """These are the ranks."""
        self._group = group
        if self._thread is None and self._reader is not None:
            self._thread = threading.Thread(target=self._run, name="safelaunch-traces", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with contained(self._console.degraded, "no more traces can be taken in this run"):
                self.turn()
                time.sleep(BUSY_S if self._at is not None else IDLE_S)
                continue
            return

    def turn(self) -> None:
        """Look for what is asked, and how far the ranks are with it."""
        request, group = self._asked(), self._group
        assert self._reader is not None
        if self._at is not None and (request is None or request.number != self._at.request.number):
            if not self._at.withdraw(group):
                return  # a rank records still, and ends with its next step
            self._at = None
        if request is None or group is None:
            return
        if self._at is None:
            with contextlib.suppress(OSError):  # the ranks find no folder then, and say so
                files.write_json(os.path.join(self._plan.run_dir, FOLDER, str(request.number), "request.json"), request)
            no_kernels = cupti.missing(worker.pid for worker in group.alive)
            self._at = _Trace(request, group, self._reader, no_kernels)
            self._console.aside(f"safelaunch trace: {request.count} steps are to be recorded")
        if self._at.request != request:
            self._at.begin(request)
        self._tell(self._at)

    def _asked(self) -> Request | None:
        path = os.path.join(self._plan.run_dir, FILE)
        try:
            if os.lstat(path).st_uid not in (os.geteuid(), 0):
                return None
            request = checked(Request, json.loads(regular.read(path, MOST)))
        except (OSError, ValueError, RecursionError, ShapeError):
            return None
        bounds = (request.number, 1 << 32), (request.count, MOST_STEPS), (request.by, trace_words.MARKS)
        sound = all(1 <= number <= most for number, most in bounds) and 0 <= request.first < trace_words.LARGEST
        return request if sound and time.time() < request.until else None

    def _tell(self, trace: _Trace) -> None:
        answer = trace.answer(self._group)
        if answer is None:
            return
        link = self._nodes.link
        answer["world_size"] = self._group.world_size if self._group is not None else 0
        answer["host"] = socket.gethostname()
        answer["offset_s"] = link.peers.offset_s if link is not None else 0.0
        answer["clock_error_s"] = link.peers.clock_error_s if link is not None else 0.0
        with contextlib.suppress(OSError):
            files.write_json(os.path.join(self._plan.run_dir, ANSWER), answer)


class _Trace:
    """One trace.

    Args:
        request: what is wanted.
        group: the ranks as it was asked for.
        reader: of their slots.
        no_kernels: why no kernels can be recorded, or empty.
    """

    def __init__(
        self, request: Request, group: WorkerGroup, reader: black_box_reader.Reader, no_kernels: str = ""
    ) -> None:
        self.request, self._no_kernels = request, no_kernels
        self._reader = reader
        chosen = [one for one in group.alive if request.ranks is None or one.rank in request.ranks]
        self._workers = [one for one in chosen if reader.trace_words(one.local_rank, one.pid) is not None]
        self._began, self._counts = time.monotonic(), {one.rank: self._count(one) for one in self._workers}
        self._pace: dict[int, tuple[float, ...]] | None = None  # by rank: steps and marks a second
        self._told: list[Any] = []
        self._told_at = 0.0

    def begin(self, request: Request) -> None:
        """The command has chosen the step, for those ranks that it says."""
        self.request = request
        self._workers = [one for one in self._workers if request.ranks is None or one.rank in request.ranks]
        for worker in self._workers:
            words = self._reader.trace_words(worker.local_rank, worker.pid)
            if words is not None:
                words[trace_words.FIRST], words[trace_words.COUNT] = request.first, request.count
                words[trace_words.BY], words[trace_words.KERNELS] = request.by, not self._no_kernels
                self._reader.trace(worker.local_rank, request.number)

    def withdraw(self, group: WorkerGroup | None) -> bool:
        """The command has gone: who has not begun does not begin, and who records ends with the next step. Returns
        whether nobody does any more."""
        alive = {one.pid for one in group.alive} if group is not None else set()
        left = [one for one in self._workers if one.pid in alive]
        self._workers = []
        for worker in left:
            words = self._reader.trace_words(worker.local_rank, worker.pid)
            if words is None:
                continue
            words[trace_words.COUNT] = 0
            if trace_words.state(words, self.request.number) == trace_words.RECORDING:
                self._workers.append(worker)
            else:
                self._reader.trace(worker.local_rank, 0)
        return not self._workers

    def answer(self, group: WorkerGroup | None) -> dict[str, Any] | None:
        """What is new; None where nothing is."""
        now = time.monotonic()
        counts = {worker.rank: self._count(worker) for worker in self._workers}
        if self._pace is None:
            if now - self._began < PACE_S:
                return None
            took = now - self._began
            self._pace = {
                rank: tuple((now - was) / took for now, was in zip(counts[rank], self._counts[rank], strict=True))
                for rank in counts
            }
        states = [self._state(worker, group) for worker in self._workers]
        for worker, state in zip(self._workers, states, strict=True):
            if state in STATES[2:]:
                self._reader.trace(worker.local_rank, 0)  # its steps look no further
        if (states == self._told and now - self._told_at < TELL_S) or self._pace is None:
            return None
        self._told, self._told_at = states, now
        ranks = {}
        for worker, state in zip(self._workers, states, strict=True):
            steps, marks = counts[worker.rank]
            pace = self._pace[worker.rank]
            ranks[str(worker.rank)] = {"pid": worker.pid, "state": state, "steps": steps, "marks": marks, "pace": pace}
        about = {"number": self.request.number, "first": self.request.first, "no_kernels": self._no_kernels}
        return {**about, "ranks": ranks}

    def _state(self, worker: WorkerProcess, group: WorkerGroup | None) -> str:
        words = self._reader.trace_words(worker.local_rank, worker.pid)
        alive = group is not None and any(one.pid == worker.pid for one in group.alive)
        state = STATES[trace_words.state(words, self.request.number) % len(STATES)] if words is not None else STATES[0]
        return state if alive or state in STATES[2:] else ENDED

    def _count(self, worker: WorkerProcess) -> tuple[int, int]:
        pulse = self._reader.pulse(worker.local_rank, worker.pid)
        return (pulse.steps, pulse.marks) if pulse is not None else (0, 0)

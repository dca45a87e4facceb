"""What the events of a node come to: the worker group of its latest attempt, and what is to be said."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from safelaunch.codec import ShapeError, checked
from safelaunch.evidence.ranks import MOST_LOCAL
from safelaunch.model import Exit, WorkerGroup, WorkerProcess
from safelaunch.top.picture import Level, Notice
from safelaunch.top.tail import Event

KEPT = 4096  # sentences
OURS: Mapping[str, Any] = {"workers": [], "exit": None}  # what the event of a group, or of a worker, does not tell


@dataclass(frozen=True)
class _Ended:
    pid: int
    code: int
    t: float


@dataclass(frozen=True)
class _Checked:
    refused: bool = False


@dataclass(frozen=True)
class _Said:
    code: str
    summary: str


@dataclass(frozen=True)
class _Progress:
    step: int
    step_s: float


@dataclass(frozen=True)
class _Signal:
    signal: str


@dataclass(frozen=True)
class _Degraded:
    missing: str


@dataclass(frozen=True)
class _Cold:
    reason: str | None = None


class Attempts:
    """The attempts so far. A million events cost no more than to read them: what they come to is made when it is asked
    for.

    Args:
        owner: whose files the ranks' are; None where they are ours.
    """

    def __init__(self, owner: int | None = None) -> None:
        self.count = 0
        self.begun = 0.0  # when the latest of them began
        self.notices: list[Notice] = []
        self.progress: tuple[int, float] | None = None  # step of the slowest rank, and seconds of each, as told last
        self._owner = owner
        self._group: WorkerGroup | None = None  # without its workers, and with them
        self._made: WorkerGroup | None = None
        self._workers: dict[int, WorkerProcess] = {}  # by rank
        self._ranks: dict[int, int] = {}  # by pid
        self._exits: dict[int, Exit] = {}  # by pid

    @property
    def group(self) -> WorkerGroup | None:
        """The worker group of the latest attempt; None before the first."""
        if self._made is None and self._group is not None:
            workers = (replace(one, exit=self._exits.get(one.pid)) for one in self._workers.values())
            self._made = replace(self._group, workers=tuple(workers))
        return self._made

    def take(self, event: Event) -> bool:
        """One event more; returns whether it was one. One that is none of ours, not of its shape, or of a process that
        is none of the attempt's, changes nothing."""
        if event.name not in TAKEN:
            return False
        shape, handle = TAKEN[event.name]
        try:
            handle(self, event.time, checked(shape, {**event.fields, **OURS, "owner": self._owner}))
        except ShapeError:
            return False
        return True

    def _say(self, at: float, level: Level, text: str) -> None:
        self.notices.append(Notice(at, level, text))
        del self.notices[:-KEPT]

    def _on_group(self, at: float, group: WorkerGroup) -> None:
        if self.count:
            self._say(at, "note", f"attempt {group.attempt} begins")
        self.count += 1
        self.begun, self.progress = at, None
        self._group, self._made = group, None
        self._workers, self._ranks, self._exits = {}, {}, {}

    def _on_worker(self, at: float, worker: WorkerProcess) -> None:  # noqa: ARG002
        if self._group is None or (len(self._workers) >= MOST_LOCAL and worker.rank not in self._workers):
            raise ShapeError("no attempt has begun, or it has more ranks than a node can have")
        self._workers[worker.rank] = worker
        self._ranks.setdefault(worker.pid, worker.rank)
        self._made = None

    def _on_exit(self, at: float, ended: _Ended) -> None:
        if ended.pid not in self._ranks or ended.pid in self._exits:
            raise ShapeError("it is no rank, or has ended already")
        self._exits[ended.pid] = Exit(ended.code, ended.t)
        self._made = None
        if ended.code:
            self._say(at, "warning", f"rank {self._ranks[ended.pid]} {how(ended.code)}")

    def _on_preflight(self, at: float, found: _Checked) -> None:
        if found.refused:
            self._say(at, "error", "the preflight has refused this node")

    def _on_verdict(self, at: float, said: _Said) -> None:
        self._say(at, "error", f"{said.code}: {said.summary}")

    def _on_notice(self, at: float, said: _Said) -> None:
        self._say(at, "warning", f"{said.code}: {said.summary}")

    def _on_progress(self, at: float, said: _Progress) -> None:  # noqa: ARG002
        self.progress = said.step, said.step_s

    def _on_signal(self, at: float, said: _Signal) -> None:
        self._say(at, "warning", f"{said.signal} has come to safelaunch")

    def _on_degraded(self, at: float, said: _Degraded) -> None:
        self._say(at, "warning", f"SL902: {said.missing}")

    def _on_cold(self, at: float, said: _Cold) -> None:
        if said.reason:
            self._say(at, "note", f"cold start: {said.reason}")


# By the name of an event: the shape that its line has to have, and what takes it.
TAKEN: Mapping[str, tuple[type[Any], Callable[[Attempts, float, Any], None]]] = {
    "group": (WorkerGroup, Attempts._on_group),
    "worker": (WorkerProcess, Attempts._on_worker),
    "exit": (_Ended, Attempts._on_exit),
    "preflight": (_Checked, Attempts._on_preflight),
    "verdict": (_Said, Attempts._on_verdict),
    "notice": (_Said, Attempts._on_notice),
    "progress": (_Progress, Attempts._on_progress),
    "signal": (_Signal, Attempts._on_signal),
    "degraded": (_Degraded, Attempts._on_degraded),
    "cold": (_Cold, Attempts._on_cold),
}


def how(code: int) -> str:
    """How a process has ended: `ended with exit code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def ended(code: int) -> str:
    """The same in two words: `exit 1`, `by SIGKILL`."""
    return f"exit {code}" if code >= 0 else f"by {how(code).rpartition(' ')[2]}"

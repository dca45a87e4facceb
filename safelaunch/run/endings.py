"""The wiring of the watch over ranks that have failed and live on: pulses, looks, a word, and the incident."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

from safelaunch import black_box_reader
from safelaunch.diagnosis.hang.does_not_end import kept_by, waits_for_others
from safelaunch.evidence import LIVES_ON, case, sockets
from safelaunch.evidence.gather import gather
from safelaunch.evidence.source_lines import describe
from safelaunch.model import Case, Evidence, Incident, WorkerGroup
from safelaunch.pulse import PROGRAM_RAISED
from safelaunch.run.console import Console
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained
from safelaunch.run.pulses import pulses_of
from safelaunch.watch.endings import EndWatch, Work
from safelaunch.watch.pauses import paused

LOOK_S = 1.0
SOURCE_S = 0.3


class Endings:
    """What one run knows of its ranks that have failed, and whose processes go on.

    Args:
        reader: of the black box, None where there is none.
        watch: makes the decisions of one attempt.
        console: of the run.
        judge: of the run.
        host: this host's name.
    """

    def __init__(
        self,
        reader: black_box_reader.Reader | None,
        watch: Callable[[], EndWatch],
        console: Console,
        judge: Judge,
        host: str,
    ) -> None:
        self._reader = reader
        self._new_watch = watch
        self._console = console
        self._judge = judge
        self._host = host
        self._watch = watch()
        self._attempt = -1
        self._earlier: tuple[Evidence, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether a rank has failed and lives on: that others wait is no hang then."""
        return bool(self._watch.since)

    @property
    def told(self) -> float | None:
        """CLOCK_MONOTONIC at which it was told of; None where it was not."""
        return self._watch.told

    def poll(self, group: WorkerGroup) -> Incident | None:
        """One round: an incident when it is time to end the ranks. A fault of ours ends the watch, and nothing else."""
        if self._reader is None:
            return None
        with contained(self._console.degraded, "ranks that failed are not watched any more"):
            return self._poll(group, self._reader)
        self._reader = None
        self._watch = self._new_watch()
        return None

    def _poll(self, group: WorkerGroup, reader: black_box_reader.Reader) -> Incident | None:
        if group.attempt != self._attempt:
            self._attempt, self._watch, self._earlier = group.attempt, self._new_watch(), ()
        failed = {rank for rank, look in pulses_of(reader, group.alive).items() if look.state & PROGRAM_RAISED}
        step = self._watch.poll(failed, time.monotonic())
        if not step:
            return None
        before = self._earlier
        facts = self._take(group, failed)
        ranks = [rank for rank in facts.ranks if rank.rank in failed]
        now = time.monotonic()
        if paused(ranks):
            self._watch.pause(now)
            return None
        waits = all(waits_for_others(facts, rank) for rank in ranks)
        work = self._watch.looked([rank.kernel for rank in ranks], waits, now, _carried(before, self._earlier))
        if step == "tell":
            self._tell(facts, work, now)
        if step == "end" and not work:
            return Incident("exit", group.attempt, tuple(sorted(failed)), self._watch.first)
        return None

    def _take(self, group: WorkerGroup, failed: Iterable[int]) -> Case:
        """Evidence of those that have failed, as a case."""
        incident = Incident("exit", group.attempt, tuple(sorted(failed)), self._watch.first)
        workers = [worker for worker in group.alive if worker.rank in incident.ranks]
        evidence = gather(incident, workers, LIVES_ON, LOOK_S)
        facts = case.build(incident, group, evidence, self._host, None, earlier=self._earlier, now=time.monotonic())
        self._earlier = evidence
        stacks = [rank.stack for rank in facts.ranks if rank.stack is not None]
        return dataclasses.replace(facts, source=describe(stacks, SOURCE_S))

    def _tell(self, facts: Case, work: Work, now: float) -> None:
        self._watch.told = now
        verdict = self._judge.verdict(dataclasses.replace(self._judge.explained(facts), now=None))
        kept = next(kept_by(facts, rank) for rank in facts.ranks if rank.rank in facts.incident.ranks)
        self._console.notice(verdict, f"its process goes on: {kept}; {self._next_step(work)}")

    def _next_step(self, work: Work) -> str:
        if not self._watch.ends:
            return "watching on"
        if work == "moves":
            return "it reads or writes, and is waited for as long as it does"
        if work == "computes":
            return f"it computes, and is waited for until {self._watch.computing_s:g} s after the exception"
        return "it does no work: ending the ranks in a moment"


def _carried(before: Iterable[Evidence], after: Iterable[Evidence]) -> float:
    """What the TCP connections of all these ranks have carried between two looks, in bytes a second."""
    earlier = {item.rank: item for item in before if item.source == sockets.SOURCE}
    return sum(sockets.rate(earlier.get(item.rank), item) for item in after if item.source == sockets.SOURCE)

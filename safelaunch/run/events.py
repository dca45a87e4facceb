"""`events.jsonl`: what happens in a run, for programs that follow it. Its schema is docs/events.schema.json.

agent.jsonl has all that the supervisor hears, in the words of this version; these are few, and stay what they are.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from safelaunch import black_box_reader, redaction
from safelaunch.launch.journal import Journal
from safelaunch.launch.stages import Outcome
from safelaunch.model import SCHEMA_VERSION, LaunchPlan, Verdict, WorkerGroup
from safelaunch.model.hosts import host_name
from safelaunch.run.pulses import pulses_of

NAME = "events.jsonl"
LOOK_S = 1.0  # from one look at the ranks' steps to the next
PROGRESS_S = 60.0
LONGEST = 4000  # characters of a sentence


class Events:
    """Writes the events of one run on this node. Where they cannot be written, that is told once.

    Args:
        plan: of the run.
        reader: of the ranks' slots, None where there is none.
        tell: takes the sentence about a fault.
    """

    def __init__(self, plan: LaunchPlan, reader: black_box_reader.Reader | None, tell: Callable[[str], None]) -> None:
        self._journal = Journal(os.path.join(plan.run_dir, NAME))
        self._reader, self._tell = reader, tell
        self._host = host_name(socket.gethostname())
        self._told_broken = False
        self._notices: set[tuple[str, str]] = set()
        self._begun = time.monotonic()
        self._attempt = -1
        self._next = self._told = 0.0
        self._steps = 0  # of the slowest rank, when its progress was told last
        self._write("start", run_id=plan.run_id, script=plan.script, nodes=str(plan.torchrun["nnodes"]))

    def poll(self, group: WorkerGroup) -> None:
        """These ranks run."""
        now = time.monotonic()
        if group.attempt != self._attempt:
            self._attempt, self._steps, self._told = group.attempt, 0, now
            if group.attempt:
                self._write("restart", attempt=group.attempt)
            ranks = [worker.rank for worker in group.workers]
            self._write("ready", attempt=group.attempt, ranks=ranks, world_size=group.world_size, **self._since())
        if now < self._next:
            return
        self._next = now + LOOK_S
        looks = pulses_of(self._reader, group.alive).values()
        steps = [pulse.steps or max(pulse.mark_step, 0) for pulse in looks]
        if not steps or not all(steps):
            return
        slowest, furthest = min(steps), max(steps)
        if not self._steps:
            self._write("first_step", attempt=group.attempt, **self._since())
        elif now - self._told < PROGRESS_S or slowest == self._steps:
            return
        else:
            each = (now - self._told) / max(slowest - self._steps, 1)
            self._write("progress", attempt=group.attempt, step=slowest, furthest=furthest, step_s=round(each, 6))
        self._told, self._steps = now, slowest

    def notice(self, verdict: Verdict) -> None:
        """Something is told while the ranks go on, each thing once."""
        if (verdict.code, verdict.summary) not in self._notices:
            self._notices.add((verdict.code, verdict.summary))
            self._write("notice", **_said(verdict))

    def verdict(self, verdict: Verdict) -> None:
        """An attempt ends with it."""
        self._write("verdict", **_said(verdict))

    def end(self, outcome: Outcome, exit_code: int) -> None:
        """The run is over."""
        self._write(
            "end",
            exit_code=exit_code,
            interrupted=outcome.interrupted,
            preempted=outcome.preempted is not None,
            attempts=len(outcome.groups),
            **self._since(),
        )

    def _since(self) -> dict[str, float]:
        return {"after_s": round(time.monotonic() - self._begun, 3)}

    def _write(self, event: str, **fields: Any) -> None:
        self._journal.write(event, schema_version=SCHEMA_VERSION, host=self._host, **fields)
        if self._journal.failed is not None and not self._told_broken:
            self._told_broken = True
            self._tell(f"the events of this run are not written down: {self._journal.failed}")


def _said(verdict: Verdict) -> dict[str, Any]:
    place = verdict.location
    return {
        "code": verdict.code,
        "summary": redaction.text(verdict.summary)[:LONGEST],
        "ranks": list(verdict.culprit_ranks),
        "culprit_host": verdict.host,
        "where": f"{place.file}:{place.line}" if place else "",
        "confidence": verdict.confidence,
    }

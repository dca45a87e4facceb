"""What earlier runs say of this one's verdict, and the line that this one leaves for later ones."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Mapping, Sequence

from safelaunch import history, redaction
from safelaunch.deadline import within
from safelaunch.history import Entry
from safelaunch.launch.stages import Outcome
from safelaunch.model import Case, LaunchPlan, Verdict
from safelaunch.model.hosts import host_name

ANSWER_S = 1.0  # the state folder may lie on a file system that does not answer: no run waits for it longer
WEEK_S = 7 * 86400.0
ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class History:
    """The runs of this user, as far as they bear on this one.

    Args:
        plan: of the run.
        environ: of safelaunch.
        kept: whether anything is remembered at all.
    """

    def __init__(self, plan: LaunchPlan, environ: Mapping[str, str], *, kept: bool) -> None:
        self._plan = plan
        self._environ = environ
        self._kept = kept
        self.steps: int | None = None  # optimizer steps of the rank that has made the most, as far as is known

    def known(self, facts: Case, verdict: Verdict, hosts: Sequence[str]) -> Verdict:
        """The verdict, with what earlier runs say of it.

        Args:
            facts: what it was concluded from.
            verdict: of this run.
            hosts: the nodes of this run.
        """
        self.steps = max((rank.step for rank in facts.ranks), default=0) or None
        if not self._kept or not verdict.culprit_ranks:
            return verdict
        try:
            before = within(ANSWER_S, lambda: history.read(self._environ))
            now = self._entry(verdict, 1, hosts, facts.world_size, 0.0)
        except OSError:
            return verdict
        several_nodes = facts.world_size > len(facts.ranks) or verdict.nodes > 1
        told = again(before, now) or (blamed_again(before, now) if several_nodes else "")
        return dataclasses.replace(verdict, because=(*verdict.because, told)) if told else verdict

    def ended(
        self, outcome: Outcome, verdict: Verdict | None, exit_code: int, elapsed_s: float, hosts: Sequence[str]
    ) -> None:
        """Write this run down. Where that is not possible, as where HOME is read-only, nobody misses it."""
        if self._kept and outcome.groups:
            with contextlib.suppress(OSError):
                entry = self._entry(verdict, exit_code, hosts, outcome.groups[-1].world_size, elapsed_s)
                within(ANSWER_S, lambda: history.add(self._environ, entry))

    def _entry(
        self, verdict: Verdict | None, exit_code: int, hosts: Sequence[str], world_size: int, elapsed_s: float
    ) -> Entry:
        plan = self._plan
        script = plan.script if plan.mode == "module" else os.path.join(os.getcwd(), plan.script)
        entry = Entry(
            at=time.time(),
            run_id=plan.run_id,
            run_dir=plan.run_dir,
            script=script,
            arguments=" ".join(redaction.arguments(list(plan.script_args))),
            hosts=tuple(hosts) or (host_name(socket.gethostname()),),
            world_size=world_size,
            elapsed_s=elapsed_s,
            exit_code=exit_code,
            steps=self.steps,
        )
        if verdict is None:
            return entry
        place = verdict.location
        return dataclasses.replace(
            entry,
            code=verdict.code,
            summary=redaction.text(verdict.summary),
            host=verdict.host,
            culprit_ranks=verdict.culprit_ranks,
            operation=verdict.operation or "",
            place=f"{place.file}:{place.line}" if place else "",
        )


def again(before: Sequence[Entry], now: Entry) -> str:
    """That the same script has come to the same verdict at the same step before; empty where it has not."""
    if now.steps is None:
        return ""
    same = [one for one in before if _what(one) == _what(now) and one.run_id != now.run_id]
    if not same:
        return ""
    elsewhere = all(set(one.hosts).isdisjoint(now.hosts) for one in same)
    count = _ordinal(len(same) + 1)
    where = ", on other nodes: not the hardware" if elsewhere else ""
    return f"the same verdict for the {count} time at step {now.steps}{where} (before: run {same[-1].run_id})"


def blamed_again(before: Sequence[Entry], now: Entry) -> str:
    """That other runs of this week have blamed the same node; empty where none has."""
    week = [one for one in before if now.at - WEEK_S < one.at and one.host == now.host and one.run_id != now.run_id]
    runs = [one for one in week if one.culprit_ranks and len(one.hosts) > 1]
    if not now.host or not runs:
        return ""
    return (
        f"{now.host} for the {_ordinal(len(runs) + 1)} time this week (before: run {runs[-1].run_id}, {runs[-1].code})"
    )


def _what(entry: Entry) -> tuple[object, ...]:
    """What makes two ends the same: words may hold pids and times, and other ranks may be there on other nodes."""
    return entry.script, entry.code, entry.operation, entry.place, entry.steps


def _ordinal(number: int) -> str:
    return ORDINALS[number] if number < len(ORDINALS) else f"{number}th"

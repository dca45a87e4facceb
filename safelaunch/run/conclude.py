"""The end of an attempt: the evidence that will not wait, the rest of it, and the verdict."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from safelaunch.codes import Trait, has
from safelaunch.diagnosis import untold
from safelaunch.diagnosis.blame.apart import lines_apart
from safelaunch.diagnosis.blame.rank_guard import told_frames
from safelaunch.diagnosis.crash import aborted
from safelaunch.diagnosis.notice import gave_up
from safelaunch.evidence import ASKED, LASTING, URGENT, case, memory, self_report
from safelaunch.evidence.gather import gather
from safelaunch.evidence.source_lines import describe, places, with_raised_exits
from safelaunch.model import Case, Evidence, Incident, LaunchPlan, Stack, Verdict, WorkerGroup, WorkerProcess
from safelaunch.run.console import Console
from safelaunch.run.endings import Endings
from safelaunch.run.hang import Hangs
from safelaunch.run.hardware import Hardware
from safelaunch.run.history import History
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained
from safelaunch.run.restarts import Restarts
from safelaunch.run.this_node import ThisNode

URGENT_S = 0.8  # the living are held back from their end for at most this long
LASTING_S = 0.2
ASKED_S = 0.7  # a beat thread looks five times a second
SOURCE_S = 0.3


@dataclass(frozen=True)
class Urgent:
    """What was taken before anybody was ended; `hardware` is still being read."""

    evidence: tuple[Evidence, ...] = ()
    hardware: Hardware | None = None


@dataclass(frozen=True)
class Found:
    """A case, the evidence that it was built from, and what the rules say of it."""

    facts: Case
    verdict: Verdict
    evidence: tuple[Evidence, ...]


class Conclusions:
    """From an incident to its verdict and its folder.

    Args:
        plan: of the run.
        console: of the run.
        incidents: of the run.
        judge: of the run.
        this_node: for what the hardware of the ranks does.
        hangs: what was told of ranks that wait.
        endings: what was told of ranks that had failed and lived on.
        nodes: the others of the job.
        restarts: what its attempts came to.
        history: what earlier runs came to.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        console: Console,
        incidents: Incidents,
        judge: Judge,
        this_node: ThisNode,
        hangs: Hangs,
        endings: Endings,
        nodes: JobNodes,
        restarts: Restarts,
        history: History,
    ) -> None:
        self._plan = plan
        self._console = console
        self._incidents = incidents
        self._judge = judge
        self._this_node = this_node
        self._hangs = hangs
        self._endings = endings
        self._nodes = nodes
        self._restarts = restarts
        self._history = history
        self._oom_before = memory.oom_kills()

    def suspect(self, incident: Incident, group: WorkerGroup) -> Urgent:
        """What will not wait: kernel state and stacks of the ranks that live. Of a hang they have been taken."""
        if incident.kind == "hang":
            return Urgent()
        self._nodes.failing()
        hardware = self._this_node.hardware(group.workers, waits=False)
        return Urgent(gather(incident, group.alive, URGENT, URGENT_S), hardware)

    def conclude(self, incident: Incident, group: WorkerGroup, urgent: Any) -> Verdict:
        """The rest of the evidence, the verdict, and the incident's folder. A fault of ours must not keep the ranks
        waiting for their end."""
        with contained(self._console.degraded, "not all of the verdict is known"):
            verdict = self._concluded(incident, group, urgent if isinstance(urgent, Urgent) else Urgent())
            if self._is_last(incident, group):
                self._nodes.tell_end(verdict)
            return verdict
        told = self._hangs.last_word() if incident.kind == "hang" else None
        if told is not None:
            return self._incidents.concluded(told, self._hangs.folder)
        return untold(Case(incident, self._this_node.name, group.world_size, ()))

    def _concluded(self, incident: Incident, group: WorkerGroup, urgent: Urgent) -> Verdict:
        if self._nodes.end is not None:
            return self._of_other_nodes(incident, group, urgent, self._nodes.end)
        if incident.kind == "hang":
            return self._of_hang(incident, group)
        return self._of_failure(incident, group, urgent)

    def _is_last(self, incident: Incident, group: WorkerGroup) -> bool:
        """Whether no attempt follows this one."""
        ended_by_us = incident.kind == "hang" and not self._plan.restart_hangs
        return ended_by_us or self._restarts.stops or group.attempt >= self._plan.torchrun["max_restarts"]

    def _of_other_nodes(self, incident: Incident, group: WorkerGroup, urgent: Urgent, end: Verdict) -> Verdict:
        """Why this node ends is known already: what its ranks did is kept beside it. Of a hang that is as much as who
        tells of it keeps, so that `diagnose` sees in the folders of all nodes what the run has seen."""
        if incident.kind == end.kind == "hang":
            return self._keep(
                Found(self._hangs.last_facts(incident, group, self._oom_kills()), end, self._hangs.evidence),
                self._hangs.folder,
            )
        told = self._hangs.told_facts if self._hangs.has_told(end) else None
        if incident.kind == "hang" and told is not None:
            return self._keep(Found(told, end, self._hangs.evidence), self._hangs.folder)
        evidence = urgent.evidence or gather(incident, group.alive, URGENT, URGENT_S)
        evidence = (*evidence, *gather(incident, group.workers, LASTING, LASTING_S))
        facts = case.build(incident, group, evidence, self._this_node.name, self._oom_kills())
        return self._keep(Found(facts, end, evidence))

    def _of_hang(self, incident: Incident, group: WorkerGroup) -> Verdict:
        facts, verdict = self._hangs.conclude(incident, group, self._oom_kills())
        verdict = self._history.known(facts, verdict, [*self._nodes.met.hosts])
        return self._keep(Found(facts, verdict, self._hangs.evidence), self._hangs.folder)

    def _of_failure(self, incident: Incident, group: WorkerGroup, urgent: Urgent) -> Verdict:
        evidence = (*urgent.evidence, *gather(incident, group.workers, LASTING, LASTING_S))
        found = self._found(incident, group, evidence, urgent.hardware)
        if not found.verdict.culprit_ranks and group.alive:
            found = self._asked(incident, group, evidence, urgent.hardware)
        told = self._hangs.told
        ended = [worker for worker in group.workers if worker.exit is not None]
        dumps = self._own_dumps(ended) if aborted.may_be(found.facts, found.verdict) else ()
        found = self._over_nodes(group, found, dumps, told)
        if urgent.hardware is not None:
            found = dataclasses.replace(found, evidence=(*found.evidence, *urgent.hardware.evidence()))
        verdict = self._timed(found.verdict, incident)
        if told is not None and gave_up(verdict, told, _gave_up(dumps)) and not has(verdict.code, Trait.INFRASTRUCTURE):
            # The ranks have ended themselves.
            last = self._hangs.last_word(f"the wait ended when {verdict.summary}", verdict.exit_code) or verdict
            return self._incidents.concluded(last, self._hangs.folder)
        verdict = self._history.known(found.facts, verdict, [*self._nodes.met.hosts])
        waited = told is not None and found.facts.incident.kind == "hang"
        folder = self._hangs.folder if waited else ""
        return self._keep(dataclasses.replace(found, verdict=verdict), folder)

    def _over_nodes(self, group: WorkerGroup, found: Found, dumps: tuple[Evidence, ...], told: Verdict | None) -> Found:
        """What this node has found, with the verdict over all nodes where there is one. Ranks that their watchdogs have
        ended are shown to the others as they waited, for it is so that all see them, whatever was told here before."""
        before = found
        if _gave_up(dumps) and (told is None or self._nodes.address is not None):
            before = self._before_an_abort(group, found, dumps)
        over_all = self._nodes.verdict(before.facts)
        if over_all is None:
            return before if told is None else found
        if before.verdict is not found.verdict and has(over_all.code, Trait.EFFECT):
            return before  # what the dumps here say is more than that ranks were aborted
        return dataclasses.replace(before, verdict=_ended_by_themselves(over_all, before.verdict))

    def _asked(
        self, incident: Incident, group: WorkerGroup, evidence: tuple[Evidence, ...], hardware: Hardware | None
    ) -> Found:
        """Where nobody can be named, the living may know more, such as an exception that a program has caught."""
        asked = gather(incident, group.alive, ASKED, ASKED_S)
        reports = (item for item in asked if item.source == self_report.SOURCE)
        return self._found(incident, group, (*evidence, *reports), hardware)

    def _found(
        self, incident: Incident, group: WorkerGroup, evidence: tuple[Evidence, ...], hardware: Hardware | None
    ) -> Found:
        facts = case.build(incident, group, evidence, self._this_node.name, self._oom_kills())
        facts = self._judge.explained(hardware.add_to(facts) if hardware is not None else facts)
        facts = with_source(facts)
        return Found(facts, self._judge.verdict(facts), evidence)

    def _own_dumps(self, workers: Iterable[WorkerProcess]) -> tuple[Evidence, ...]:
        """What torch's watchdogs have written of ranks that they have ended, or are ending."""
        from safelaunch.evidence import own_dumps

        return own_dumps.left_by(workers, self._plan.env, os.environ)

    def _before_an_abort(self, group: WorkerGroup, found: Found, dumps: tuple[Evidence, ...]) -> Found:
        """What ranks that torch's watchdogs have ended had waited for, by the dumps that these left and by what the
        living say; all as it is, where a rank failed for another reason."""
        from safelaunch.evidence import flight_recorder

        facts = found.facts
        asked = gather(facts.incident, group.alive, ASKED, ASKED_S)
        silent = {item.rank for item in asked if item.source == flight_recorder.SOURCE and item.data is None}
        dumps = (*dumps, *self._own_dumps(worker for worker in group.alive if worker.rank in silent))
        given_up = _gave_up(dumps)
        more = (*found.evidence, *dumps, *asked)
        whole = case.build(facts.incident, group, more, self._this_node.name, facts.oom_kills, now=time.monotonic())
        too_late = aborted.of_late_calls(found.verdict, whole, _late(dumps))
        if too_late is not None:
            return Found(facts, too_late, more)
        before = aborted.as_it_was(whole, given_up)
        if before is None:
            return found
        source = describe([place for rank in before.ranks for place in places(rank)], SOURCE_S)
        before = dataclasses.replace(before, source=source, gpus=facts.gpus)
        told = aborted.of_waiting(found.verdict, self._judge.verdict(before), whole, given_up)
        return Found(before, told, more) if told is not found.verdict else found

    def _timed(self, verdict: Verdict, incident: Incident) -> Verdict:
        """With the seconds from the failure to the first word of it, and to the verdict."""
        after = round(time.monotonic() - incident.t, 3)
        told_at = self._endings.told or 0.0
        first = round(told_at - incident.t, 3) if told_at > incident.t else after
        return dataclasses.replace(verdict, detected_after_s=first, concluded_after_s=after)

    def _oom_kills(self) -> int | None:
        """How many processes the kernel has ended for want of memory since the start; None where it does not say."""
        before, now = self._oom_before, memory.oom_kills()
        return now - before if now is not None and before is not None else None

    def _keep(self, found: Found, folder: str = "") -> Verdict:
        self._restarts.concluded(found.facts, found.verdict)
        folder = self._incidents.write(found.facts, found.verdict, found.evidence, folder)
        self._incidents.page_later(folder, found.facts, found.verdict)
        return self._incidents.concluded(found.verdict, folder)


def _ended_by_themselves(over_all: Verdict, here: Verdict) -> Verdict:
    """The verdict over all nodes, with the exit code of ranks that have ended themselves, though in a hang."""
    return dataclasses.replace(over_all, exit_code=here.exit_code) if over_all.kind == "hang" else over_all


def _gave_up(dumps: Iterable[Evidence]) -> frozenset[int]:
    """Ranks whose watchdogs had given up a call, by the dumps that these have left."""
    return frozenset(item.rank for item in dumps if item.data is not None and item.data["given_up"])


def _late(dumps: Iterable[Evidence]) -> dict[int, aborted.LateCall]:
    """Calls that came to an end after their timeouts, of ranks that waited for no other."""
    late = {item.rank: item.data.get("late") for item in dumps if item.data is not None and item.rank is not None}
    return {rank: aborted.LateCall(**call) for rank, call in late.items() if call}


def with_source(facts: Case) -> Case:
    """With the line that raised SystemExit, where a program has failed so, and with what stands around the lines at
    which ranks failed, where others have left in good order: a condition there tells who is wrong. Of ranks that have
    failed and live on, with the lines at which they are."""
    facts = with_raised_exits(facts, SOURCE_S)
    alive = [rank.stack for rank in facts.ranks if rank.exit is None and rank.rank in facts.incident.ranks]
    if any(alive):
        return dataclasses.replace(facts, source=describe([stack for stack in alive if stack], SOURCE_S))
    if not any(rank.exit is not None and rank.exit.code == 0 for rank in facts.ranks):
        return facts
    stacks = [Stack(tuple(told_frames(rank)), "traceback") for rank in facts.ranks]
    stacks.append(Stack(tuple(lines_apart(facts)), "record"))
    return dataclasses.replace(facts, source=describe(stacks, SOURCE_S))

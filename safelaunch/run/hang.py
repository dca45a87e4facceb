"""The wiring of the hang watch: pulses, looks, notices, and the incident that ends a hang."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from safelaunch import black_box, black_box_reader, durations
from safelaunch.codes import Trait, has
from safelaunch.diagnosis.blame.apart import lines_apart
from safelaunch.diagnosis.notice import is_at_work, of_those_at_work, with_notice
from safelaunch.diagnosis.stall.short_sleeps import sleep_shortly
from safelaunch.evidence import HANG_LAST, LEFT, LOOK, case
from safelaunch.evidence.gather import gather
from safelaunch.evidence.source_lines import describe, places
from safelaunch.model import (
    Case,
    Evidence,
    Incident,
    RankFacts,
    SourceLine,
    Stack,
    Verdict,
    WorkerGroup,
    WorkerProcess,
)
from safelaunch.pulse import Pulse
from safelaunch.report import verdict as terminal
from safelaunch.run.console import Console
from safelaunch.run.hardware import Hardware
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained
from safelaunch.run.pulses import pulses_of
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.hang import HangWatch, Step, slow
from safelaunch.watch.pauses import paused
from safelaunch.watch.unseen import Unseen

LOOK_S = 1.5  # an idle machine needs 0.3 s for 4 ranks; a busy one must not lose the stacks
LAST_S = 2.5  # native stacks take their time, and nothing is lost any more
SOURCE_S = 1.0
AT_WORK_LIMIT_S = 1800.0  # how long a checkpoint that is being written may put off the end: torch's longest timeout
STARTING = 20  # collectives that making groups and models may take
WATCHDOG_S = 75.0  # from a call's timeout to the abort: torch waits a minute for dumps (ProcessGroupNCCL.cpp)
AT_WORK_CPU = 0.1  # cores
AT_WORK_BYTES = 4 << 20  # a look itself makes a rank write up to 1 MB


class Hangs:
    """What one run knows of its hangs.

    Args:
        reader: of the black box, None where there is none.
        watch: the decisions.
        console: of the run.
        incidents: of the run.
        judge: of the run.
        this_node: for what the hardware of ranks that wait does.
        nodes: the others of the job.
    """

    def __init__(
        self,
        reader: black_box_reader.Reader | None,
        watch: HangWatch,
        console: Console,
        incidents: Incidents,
        judge: Judge,
        this_node: ThisNode,
        nodes: JobNodes,
    ) -> None:
        self.slow: list[Verdict] = []
        self.folder = ""
        self.evidence: tuple[Evidence, ...] = ()
        self._reader = reader
        self._watch = watch
        self._console = console
        self._incidents = incidents
        self._judge = judge
        self._this_node = this_node
        self._nodes = nodes
        self._unseen = Unseen()
        self._earlier: tuple[Evidence, ...] = ()
        self._source: tuple[SourceLine, ...] = ()
        self._facts: Case | None = None
        self._calm = False  # what was told is no reason to worry
        self._attempt = -1
        self._told_paused: set[str] = set()

    def poll(self, group: WorkerGroup) -> Incident | None:
        """One round: an incident when it is time to end the ranks. A fault of ours ends the watch, and nothing else."""
        if self._reader is None:
            return None
        with contained(self._console.degraded, "hangs are not watched for any more"):
            return self._poll(group, self._reader)
        self._reader = None
        self._watch.restart()
        return None

    def _poll(self, group: WorkerGroup, reader: black_box_reader.Reader) -> Incident | None:
        now = time.monotonic()
        if group.attempt != self._attempt:
            self._attempt = group.attempt
            self._watch.restart()
            self._unseen.restart(now)
            self.evidence, self._earlier, self._source, self.folder = (), (), (), ""
            self._facts = None
        pulses = pulses_of(reader, group.alive)
        self._tell_unseen(group, pulses, now)
        self._nodes.follow(group, max((pulse.steps for pulse in pulses.values()), default=0))
        end = self._nodes.ends(self._watch.waiting(pulses, now), now)
        if end is not None:
            if self.has_told(end):
                self._console.aside("ending the ranks of this node")
            else:
                self._console.notice(end, "ending the ranks of this node")
            return Incident("hang", group.attempt, end.culprit_ranks, now)
        self._learn_of_nodes()
        quiet = [w for w in group.alive if w.rank in pulses and self._watch.is_quiet(pulses[w.rank], now)]
        sites = {w.rank: _site(w, pulses[w.rank], reader) for w in quiet}
        step = self._watch.poll(pulses, sites, now)
        actions: dict[Step, Callable[[], Incident | None]] = {
            "": lambda: None,
            "look": lambda: self._look(group),
            "returned": lambda: None if self._gave_up(group, reader, pulses) else self._returned(now),
            "abort": lambda: self._end(group, reader),
        }
        return actions[step]()

    def _learn_of_nodes(self) -> None:
        """That a node which was told to end, and was told of, has ended since: nothing ends the wait for its ranks."""
        told = self.told
        known = self._nodes.from_elsewhere() if told is not None and has(told.code, Trait.INFRASTRUCTURE) else None
        if told is not None and known is not None and known.summary == told.summary and known.conclusive:
            self._watch.refine(dataclasses.replace(told, conclusive=True))

    def conclude(self, incident: Incident, group: WorkerGroup, oom_kills: int | None) -> tuple[Case, Verdict]:
        """The case of a hang that is being ended, and its verdict."""
        facts = self.last_facts(incident, group, oom_kills)
        notice = self._watch.notice
        judged = self._nodes.verdict(facts) or self._judge.verdict(facts)
        verdict = with_notice(judged, notice.verdict if notice is not None else None)
        return facts, self._by_limit(self.timed(verdict))

    def last_facts(self, incident: Incident, group: WorkerGroup, oom_kills: int | None) -> Case:
        """The case of a hang whose ranks are about to be ended."""
        if self._watch.notice is None:
            self._take(group)  # another node has told of it
        hardware = self._this_node.hardware(group.workers, waits=True)
        self.evidence = (*self.evidence, *gather(incident, group.workers, HANG_LAST, LAST_S))
        facts = self._with_told_hardware(self._build(incident, group, oom_kills))
        return self._judge.explained(self._with_hardware(facts, hardware))

    def timed(self, verdict: Verdict) -> Verdict:
        """The verdict with the times of the notice."""
        notice = self._watch.notice
        assert notice is not None
        now = time.monotonic()
        detected, concluded = round(notice.t - notice.since, 3), round(now - notice.since, 3)
        return dataclasses.replace(verdict, detected_after_s=detected, concluded_after_s=concluded)

    def _by_limit(self, verdict: Verdict) -> Verdict:
        """With what has ended the run, where the rank that is waited for may only have needed longer."""
        limit = self._watch.abort_after
        if limit is None or verdict.conclusive or not has(verdict.code, Trait.LATE):
            return verdict
        ended = f"the limit that was set, {durations.text(limit)}, ended the run: longer work needs a longer one"
        return dataclasses.replace(verdict, because=(*verdict.because, ended))

    def ended_well(self) -> None:
        """All ranks have ended in good order: so has what was told of them."""
        if self._watch.notice is not None:
            self._returned(time.monotonic())

    @property
    def told(self) -> Verdict | None:
        """What was told of ranks that wait, and has not ended."""
        return self._watch.notice.verdict if self._watch.notice is not None else None

    def has_told(self, end: Verdict) -> bool:
        """Whether what was told, and has not ended, is this."""
        told = self.told
        return told is not None and (told.code, told.host) == (end.code, end.host)

    @property
    def told_facts(self) -> Case | None:
        """The case of it."""
        return self._facts if self._watch.notice is not None else None

    def last_word(self, because: str = "", exit_code: int | None = None) -> Verdict | None:
        """What was told and has not ended, as a verdict beside its evidence: for a run that is interrupted, or whose
        groups time out. `exit_code` is what safelaunch exits with, where it has not ended the ranks for the hang."""
        if self._watch.notice is None:
            return None
        verdict = self.timed(self._watch.notice.verdict)
        verdict = dataclasses.replace(verdict, because=(*verdict.because, *filter(None, [because])))
        if exit_code is not None:
            verdict = dataclasses.replace(verdict, exit_code=exit_code)
        self._incidents.write_verdict(self.folder, self._facts, verdict)
        return verdict

    # ---------------------------------------------------------------------------------------------- rounds

    def _look(self, group: WorkerGroup) -> None:
        facts = self._take(group)
        verdict = self._nodes.verdict(facts) or self._judge.verdict(facts)
        pause = paused(facts.ranks)
        if pause and not self._watch.nobody_waits and pause not in self._told_paused:
            self._told_paused.add(pause)
            self._console.say(f"{pause}: the ranks wait for a person, which is no hang; the clocks stand still")
        in_passes = sleep_shortly(verdict, facts)
        if self._watch.looked(verdict, facts, bool(pause), time.monotonic(), in_passes=in_passes):
            facts = self._with_hardware(facts, self._this_node.hardware(group.workers, waits=True))
            if facts.hardware:
                verdict = self._nodes.verdict(facts) or self._judge.verdict(facts)
                self._watch.refine(verdict)
            self._tell(facts, self.timed(verdict))

    def _with_hardware(self, facts: Case, hardware: Hardware) -> Case:
        """The case with what the hardware does, which is kept as evidence as well."""
        facts = hardware.add_to(facts)
        self.evidence = (*self.evidence, *hardware.evidence())
        return facts

    def _with_told_hardware(self, facts: Case) -> Case:
        """The case with what was told of the hardware, where it cannot be read again, or is not read now: other nodes
        may put it beside what theirs does at this moment."""
        told = self._facts
        if told is None:
            return facts
        return dataclasses.replace(facts, gpus=told.gpus, ports_down=told.ports_down, ras=told.ras)

    def seen(self, group: WorkerGroup, hardware: bool) -> Case:
        """What another node has asked for: evidence of all ranks, as a case, with what their hardware does where that
        is wanted. From any thread."""
        read = self._this_node.hardware(group.workers, waits=True) if hardware else None
        found = _evidence(group)
        facts = self._build(Incident("hang", group.attempt, (), time.monotonic()), group, evidence=found)
        facts = dataclasses.replace(facts, source=_source(facts))
        return read.add_to(facts) if read is not None else facts

    def _take(self, group: WorkerGroup) -> Case:
        """Evidence of all ranks, as a case: of those that have ended, what they had recorded until then."""
        incident = Incident("hang", group.attempt, (), time.monotonic())
        found = _evidence(group)
        self._earlier, self.evidence = self.evidence, found
        facts = self._build(incident, group)
        self._source = _source(facts)
        return dataclasses.replace(facts, source=self._source)

    def _tell(self, facts: Case, verdict: Verdict) -> None:
        self.folder = self._incidents.write(facts, verdict, self.evidence, name="notice")
        self._facts = facts
        kept = f", evidence in {terminal.relative(self.folder)}" if self.folder else ""
        self._calm = is_at_work(verdict, facts)
        if self._calm:
            left = self._watch.ends_in(time.monotonic())
            then = "watching on" if left is None else f"the limit that was set ends the run in {left:.0f} s"
            self._console.aside(f"{of_those_at_work(verdict)}: {verdict.detected_after_s:.0f} s so far{kept}; {then}")
            return
        quiet = f"{verdict.detected_after_s:.0f} s without progress"
        self._console.notice(verdict, f"{quiet}{kept}; {self._next_step(verdict)}")

    def _next_step(self, verdict: Verdict) -> str:
        left = self._watch.ends_in(time.monotonic())
        if left is None:
            return "watching on"
        when = f"in {left:.0f} s" if left >= 1 else "now"
        if verdict.conclusive:
            return f"no rank is left to end this wait: ending the ranks {when} unless progress returns"
        return f"ending the ranks {when} unless progress returns"

    def _gave_up(self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: dict[int, Pulse]) -> bool:
        """Whether calls that raised an exception, such as a timeout, are all that has come back, or that torch's
        watchdog has given up: what the ranks make of it is still to be seen."""
        moved = self._watch.moved(pulses)
        if self._facts is not None and all(_is_given_up(self._facts, rank, t) for rank, t in moved.items()):
            self._watch.gave_up(moved)
            return True
        calls = [reader.latest(w.local_rank, w.pid) for w in group.alive if w.rank in moved]
        if not calls or any(call is None or call.status != black_box.RAISED_AN_ERROR for call in calls):
            return False
        self._watch.gave_up(moved)
        return True

    def _returned(self, now: float) -> None:
        verdict = slow(self._watch.returned(now), now)
        self.slow.append(verdict)
        code = "" if self._calm else f"{verdict.code}: "
        self._console.aside(f"{code}progress returned after {verdict.concluded_after_s:.0f} s; the run goes on")
        self._incidents.write_verdict(self.folder, self._facts, verdict)
        self.folder = ""

    def _end(self, group: WorkerGroup, reader: black_box_reader.Reader) -> Incident | None:
        facts = self._with_told_hardware(self._take(group))
        now = time.monotonic()
        notice = self._watch.notice
        assert notice is not None
        if self._watch.has_returned(pulses_of(reader, group.alive)):
            return None  # the next round tells
        if paused(facts.ranks):
            self._watch.pause(now)
            return None
        verdict = self._nodes.verdict(facts) or self._judge.verdict(facts)
        working = _at_work(verdict, facts) and now - notice.since < AT_WORK_LIMIT_S
        # What was told as final must still look final; only what somebody has set a limit for ends without that.
        if working or not (verdict.conclusive or self._watch.limit_passed(now)):
            self._watch.postpone(now)
            return None
        self._watch.end()
        return Incident("hang", group.attempt, verdict.culprit_ranks, notice.since)

    def _build(
        self,
        incident: Incident,
        group: WorkerGroup,
        oom_kills: int | None = None,
        evidence: tuple[Evidence, ...] | None = None,
    ) -> Case:
        now = time.monotonic()
        facts = case.build(
            incident,
            group,
            self.evidence if evidence is None else evidence,
            self._this_node.name,
            oom_kills,
            earlier=self._earlier,
            source=self._source,
            now=now,
        )
        quiet = tuple(
            dataclasses.replace(rank, quiet_s=round(self._watch.quiet(rank.rank, now), 3)) for rank in facts.ranks
        )
        return dataclasses.replace(facts, ranks=quiet)

    def _tell_unseen(self, group: WorkerGroup, pulses: dict[int, Pulse], now: float) -> None:
        """Say, once, that the ranks of this job can only be watched for their end."""
        news = self._unseen.poll([worker.rank for worker in group.alive], pulses, now)
        if news == "unseen":
            self._console.degraded(
                f"no heartbeat from {self._unseen.unseen} of {len(group.alive)} ranks (not Python, or a Python "
                "that ignores its environment): they are watched for their end only"
            )
        elif news == "unused":
            self._console.say("no rank has used torch.distributed so far: the ranks are watched for their end only")


def _evidence(group: WorkerGroup) -> tuple[Evidence, ...]:
    """What is taken of all ranks: of those that have ended, what they had recorded until then."""
    incident = Incident("hang", group.attempt, (), time.monotonic())
    ended = [worker for worker in group.workers if worker.exit is not None]
    return (*gather(incident, group.alive, LOOK, LOOK_S), *gather(incident, ended, LEFT, LOOK_S))


def _source(facts: Case) -> tuple[SourceLine, ...]:
    """What stands at the lines of the ranks, and at those of calls that their peers did not make."""
    apart = Stack(tuple(lines_apart(facts)), "record")
    return describe([apart, *(place for rank in facts.ranks for place in places(rank))], SOURCE_S)


def _site(worker: WorkerProcess, seen: Pulse, reader: black_box_reader.Reader) -> str:
    """Where a quiet rank stands: its innermost phase and its latest collective."""
    phase = seen.phases[-1][0] if seen.phases else ""
    last = reader.latest(worker.local_rank, worker.pid)
    if last is None:
        return phase
    # DDP's own collectives are not among them: what stands before the first steps is told from what stands after.
    running = seen.steps or seen.batches or seen.marks or seen.begun + seen.enqueued > STARTING
    started = "running" if running else "starting"
    return f"{phase} {last.op} {last.file}:{last.line} {last.status} {started}"


def _is_given_up(facts: Case, rank: int, t: float) -> bool:
    """Whether what a rank waited for on its device was over, at `t`, only once its time was up: torch's watchdog ends
    the call then, and soon the process."""
    waits = [call for one in facts.ranks if one.rank == rank for call in one.recorded or ()]
    waits = [call for call in waits if call.state in ("enqueued", "started")]
    return any(call.timeout_s and 0.0 <= t - (call.t + call.timeout_s) <= WATCHDOG_S for call in waits)


def _at_work(verdict: Verdict, facts: Case) -> bool:
    """Whether a culprit saves, loads or compiles, and its processes are busy with it since the look before."""
    return any(_is_busy_in_phase(rank) for rank in facts.ranks if rank.rank in verdict.culprit_ranks)


def _is_busy_in_phase(rank: RankFacts) -> bool:
    kernel = rank.kernel
    if kernel is None or not any(phase.name.startswith(("checkpoint", "compile")) for phase in rank.phases):
        return False
    return kernel.worked(AT_WORK_CPU, AT_WORK_BYTES)

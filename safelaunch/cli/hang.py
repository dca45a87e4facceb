"""The wiring of the hang watch: pulses, looks, notices, and the incident that ends a hang."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from safelaunch import black_box, black_box_reader
from safelaunch.diagnosis import diagnose, untold, why
from safelaunch.diagnosis.notice import with_notice
from safelaunch.evidence import HANG_LAST, LEFT, LOOK, case
from safelaunch.evidence.gather import gather
from safelaunch.evidence.source_lines import describe
from safelaunch.model import Case, Evidence, Incident, SourceLine, Verdict, WorkerGroup, WorkerProcess
from safelaunch.pulse import HAS_TORCH, USES_GROUPS, Pulse
from safelaunch.report import bundle
from safelaunch.report import verdict as terminal
from safelaunch.watch.hang import HangWatch, slow
from safelaunch.watch.pauses import paused

if TYPE_CHECKING:
    from safelaunch.cli.gpus import Hardware

LOOK_S = 1.5  # an idle machine needs 0.3 s for 4 ranks; a busy one must not lose the stacks
LAST_S = 2.5  # native stacks take their time, and nothing is lost any more
SOURCE_S = 1.0
TELL_UNUSED_S = 20.0  # ranks that have torch and make no process group for so long are told of
TELL_UNSEEN_S = 60.0  # ... and ranks that show nothing at all
AT_WORK_LIMIT_S = 1800.0  # how long a checkpoint that is being written may put off the end: torch's longest timeout
STARTING = 20  # collectives that making groups and models may take
WATCHDOG_S = 75.0  # from a call's timeout to the abort: torch waits a minute for dumps (ProcessGroupNCCL.cpp)
AT_WORK_CPU = 0.1  # cores
AT_WORK_BYTES = 4 << 20  # a look itself makes a rank write up to 1 MB


class Hangs:
    """What one run knows of its hangs.

    Args:
        path: the black box, None where there is none.
        watch: the decisions.
        say: prints a line.
        folder: gives the folder of a new incident.
        host: this host's name.
        report: takes the folder, the case and the verdict where a verdict is written beside evidence that lies there.
        hardware: begins to read what the hardware of the ranks does.
        explain: adds what is known of the messages of exceptions.
    """

    def __init__(
        self,
        path: str | None,
        watch: HangWatch,
        say: Callable[[str], None],
        folder: Callable[[], str],
        host: str,
        report: Callable[[str, Case, Verdict], None] = lambda *_: None,
        hardware: Callable[[WorkerGroup], Hardware] | None = None,
        explain: Callable[[Case], Case] = lambda facts: facts,
    ) -> None:
        self.watch = watch
        self.slow: list[Verdict] = []
        self.folder = ""
        self.evidence: tuple[Evidence, ...] = ()
        self._earlier: tuple[Evidence, ...] = ()
        self._source: tuple[SourceLine, ...] = ()
        self._say = say
        self._reader = self._open(path) if path else None
        self._new_folder = folder
        self._host = host
        self._report = report
        self._hardware = hardware
        self._explain = explain
        self._facts: Case | None = None
        self._attempt = -1
        self._started = self._started_beating = 0.0
        self._told_unseen = False
        self._told_paused: set[str] = set()

    def _open(self, path: str) -> black_box_reader.Reader | None:
        try:
            return black_box_reader.Reader(path)
        except (OSError, ValueError) as error:
            self._say(f"warning[SL902]: hangs are not watched for: {error}")
            return None

    def poll(self, group: WorkerGroup) -> Incident | None:
        """One round: an incident when it is time to end the ranks. A fault of ours ends the watch, and nothing else."""
        if self._reader is None:
            return None
        try:
            return self._poll(group, self._reader)
        except Exception as error:
            self._reader = None
            self.watch.restart()
            self._say(f"warning[SL902]: safelaunch's own fault, hangs are not watched for any more: {error!r}")
            return None

    def _poll(self, group: WorkerGroup, reader: black_box_reader.Reader) -> Incident | None:
        now = time.monotonic()
        if group.attempt != self._attempt:
            self._attempt, self._started, self._started_beating = group.attempt, now, now
            self.watch.restart()
            self.evidence, self._earlier, self._source, self.folder = (), (), (), ""
        pulses = self._pulses(group, reader)
        self._tell_unseen(group, pulses, now)
        quiet = [w for w in group.alive if w.rank in pulses and self.watch.is_quiet(pulses[w.rank], now)]
        step = self.watch.poll(pulses, {w.rank: self._site(w, pulses[w.rank], reader) for w in quiet}, now)
        if step == "look":
            self._look(group)
        elif step == "returned" and not self._gave_up(group, reader, pulses):
            self._returned(now)
        elif step == "abort":
            return self._end(group, reader)
        return None

    @staticmethod
    def _pulses(group: WorkerGroup, reader: black_box_reader.Reader) -> dict[int, Pulse]:
        return {w.rank: p for w in group.alive if (p := reader.pulse(w.local_rank, w.pid)) is not None}

    def conclude(self, incident: Incident, group: WorkerGroup, oom_kills: int | None) -> tuple[Case, Verdict]:
        """The case of a hang that is being ended, and its verdict."""
        hardware = self._hardware(group) if self._hardware is not None else None
        self.evidence = (*self.evidence, *gather(incident, group.workers, HANG_LAST, LAST_S))
        facts = self._build(incident, group, oom_kills)
        if self._facts is not None:  # what was told of, where it cannot be read again
            told = self._facts
            facts = dataclasses.replace(facts, gpus=told.gpus, ports_down=told.ports_down, ras=told.ras)
        facts = self._explain(self._with_hardware(facts, hardware))
        notice = self.watch.notice
        verdict = with_notice(self._judge(facts), notice.verdict if notice is not None else None)
        return facts, self.timed(verdict)

    def timed(self, verdict: Verdict) -> Verdict:
        """The verdict with the times of the notice."""
        notice = self.watch.notice
        assert notice is not None
        now = time.monotonic()
        detected, concluded = round(notice.t - notice.since, 3), round(now - notice.since, 3)
        return dataclasses.replace(verdict, detected_after_s=detected, concluded_after_s=concluded)

    @property
    def told(self) -> Verdict | None:
        """What was told of ranks that wait, and has not ended."""
        return self.watch.notice.verdict if self.watch.notice is not None else None

    def last_word(self, because: str = "") -> Verdict | None:
        """What was told and has not ended, as a verdict beside its evidence: for a run that is interrupted, or whose
        groups time out."""
        if self.watch.notice is None:
            return None
        verdict = self.timed(self.watch.notice.verdict)
        verdict = dataclasses.replace(verdict, because=(*verdict.because, *filter(None, [because])))
        self._write_verdict(verdict)
        return verdict

    # ---------------------------------------------------------------------------------------------- rounds

    def _look(self, group: WorkerGroup) -> None:
        facts = self._take(group)
        verdict = self._judge(facts)
        pause = paused(facts.ranks)
        if pause and not self.watch.nobody_waits and pause not in self._told_paused:
            self._told_paused.add(pause)
            self._say(f"{pause}: the ranks wait for a person, which is no hang; the clocks stand still")
        if self.watch.looked(verdict, facts, bool(pause), time.monotonic()):
            facts = self._with_hardware(facts, self._hardware(group) if self._hardware is not None else None)
            assert self.watch.notice is not None
            if facts.gpus or facts.ports_down or facts.ras:
                verdict = self._judge(facts)
                self.watch.notice = dataclasses.replace(self.watch.notice, verdict=verdict)
            self._tell(facts, self.timed(verdict))

    def _with_hardware(self, facts: Case, hardware: Hardware | None) -> Case:
        """The case with what the hardware does, which is kept as evidence as well."""
        if hardware is None:
            return facts
        facts = hardware.add_to(facts)
        self.evidence = (*self.evidence, *hardware.evidence())
        return facts

    def _take(self, group: WorkerGroup) -> Case:
        """Evidence of all ranks, as a case: of those that have ended, what they had recorded until then."""
        incident = Incident("hang", group.attempt, (), time.monotonic())
        ended = [worker for worker in group.workers if worker.exit is not None]
        found = (*gather(incident, group.alive, LOOK, LOOK_S), *gather(incident, ended, LEFT, LOOK_S))
        self._earlier, self.evidence = self.evidence, found
        facts = self._build(incident, group)
        stacks = [stack for rank in facts.ranks for stack in (*rank.stacks, rank.stack) if stack is not None]
        self._source = describe(stacks, SOURCE_S)
        return dataclasses.replace(facts, source=self._source)

    def _judge(self, facts: Case) -> Verdict:
        try:
            return diagnose(facts)
        except Exception as error:  # a rule that fails must not take the watch with it
            self._say(f"warning[SL902]: a rule failed: {error!r}")
            return untold(facts)

    def _tell(self, facts: Case, verdict: Verdict) -> None:
        self.folder = self._new_folder()
        kept = f", evidence in {terminal.relative(self.folder)}" if self.write(facts, verdict, "notice") else ""
        quiet = f"{verdict.detected_after_s:.0f} s without progress"
        self._say(f"{terminal.headline(verdict)}; {quiet}{kept}; {self._next_step(verdict)}")

    def _next_step(self, verdict: Verdict) -> str:
        left = self.watch.ends_in(time.monotonic())
        if left is None:
            return "watching on"
        when = f"in {left:.0f} s" if left >= 1 else "now"
        if verdict.conclusive:
            return f"nothing can end this wait: ending the ranks {when}"
        return f"ending the ranks {when} unless progress returns"

    def _gave_up(self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: dict[int, Pulse]) -> bool:
        """Whether calls that raised an exception, such as a timeout, are all that has come back, or that torch's
        watchdog has given up: what the ranks make of it is still to be seen."""
        moved = self.watch.moved(pulses)
        if self._facts is not None and all(_is_given_up(self._facts, rank, t) for rank, t in moved.items()):
            self.watch.gave_up(moved)
            return True
        calls = [reader.latest(w.local_rank, w.pid) for w in group.alive if w.rank in moved]
        if not calls or any(call is None or call.status != black_box.RAISED_AN_ERROR for call in calls):
            return False
        self.watch.gave_up(moved)
        return True

    def _returned(self, now: float) -> None:
        verdict = slow(self.watch.returned(now), now)
        self.slow.append(verdict)
        self._say(f"{verdict.code}: progress returned after {verdict.concluded_after_s:.0f} s; the run goes on")
        self._write_verdict(verdict)
        self.folder = ""

    def _write_verdict(self, verdict: Verdict) -> None:
        try:
            if self.folder:
                bundle.write_verdict(self.folder, verdict)
                if self._facts is not None:
                    self._report(self.folder, self._facts, verdict)
        except OSError as error:
            self._say(f"warning[SL902]: the verdict cannot be written: {error.filename}: {error.strerror}")

    def _end(self, group: WorkerGroup, reader: black_box_reader.Reader) -> Incident | None:
        facts = self._take(group)
        now = time.monotonic()
        notice = self.watch.notice
        assert notice is not None
        if self.watch.has_returned(self._pulses(group, reader)):
            return None  # the next round tells
        if paused(facts.ranks):
            self.watch.pause(now)
            return None
        verdict = self._judge(facts)
        working = _at_work(verdict, facts) and now - notice.since < AT_WORK_LIMIT_S
        # What was told as final must still look final; only what somebody has set a limit for ends without that.
        if working or not (verdict.conclusive or self.watch.limit_passed(now)):
            self.watch.postpone(now)
            return None
        return Incident("hang", group.attempt, verdict.culprit_ranks, notice.since)

    def write(self, facts: Case, verdict: Verdict, name: str) -> bool:
        """Write the incident's folder; one line where that is not possible there, and false where it is nowhere."""
        texts = (case.stack_text, name, why.lines)
        self.folder, fault = bundle.write(self.folder, facts, verdict, self.evidence, *texts)
        if fault:
            self._say(f"warning[SL902]: {fault}")
        self._facts = facts if self.folder else self._facts
        return bool(self.folder)

    # ---------------------------------------------------------------------------------------------- helpers

    def _build(self, incident: Incident, group: WorkerGroup, oom_kills: int | None = None) -> Case:
        now = time.monotonic()
        facts = case.build(
            incident,
            group,
            self.evidence,
            self._host,
            oom_kills,
            earlier=self._earlier,
            source=self._source,
            now=now,
        )
        quiet = tuple(
            dataclasses.replace(rank, quiet_s=round(self.watch.quiet(rank.rank, now), 3)) for rank in facts.ranks
        )
        return dataclasses.replace(facts, ranks=quiet)

    @staticmethod
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

    def _tell_unseen(self, group: WorkerGroup, pulses: dict[int, Pulse], now: float) -> None:
        """Say, once, that the ranks of this job can only be watched for their end."""
        if self._told_unseen:
            return
        unseen = [worker for worker in group.alive if worker.rank not in pulses]
        if any(pulse.state & USES_GROUPS for pulse in pulses.values()):
            self._told_unseen = not unseen
        if not any(pulse.beat or pulse.state & HAS_TORCH for pulse in pulses.values()):
            self._started_beating = now
        if unseen and now - self._started > TELL_UNSEEN_S:
            self._told_unseen = True
            self._say(
                f"warning[SL902]: no heartbeat from {len(unseen)} of {len(group.alive)} ranks (not Python, or a Python "
                "that ignores its environment): they are watched for their end only"
            )
        elif not unseen and not self._told_unseen and now - self._started_beating > TELL_UNUSED_S:
            self._told_unseen = True
            self._say("no rank has used torch.distributed so far: the ranks are watched for their end only")


def _is_given_up(facts: Case, rank: int, t: float) -> bool:
    """Whether what a rank waited for on its device was over, at `t`, only once its time was up: torch's watchdog ends
    the call then, and soon the process."""
    waits = [call for one in facts.ranks if one.rank == rank for call in one.recorded or ()]
    waits = [call for call in waits if call.state in ("enqueued", "started")]
    return any(call.timeout_s and 0.0 <= t - (call.t + call.timeout_s) <= WATCHDOG_S for call in waits)


def _at_work(verdict: Verdict, facts: Case) -> bool:
    """Whether a culprit saves, loads or compiles, and its processes are busy with it since the look before."""
    for rank in facts.ranks:
        phases = any(phase.name.startswith(("checkpoint", "compile")) for phase in rank.phases)
        if rank.rank in verdict.culprit_ranks and phases and rank.kernel is not None:
            busy = (rank.kernel.cpu_s or 0.0) > AT_WORK_CPU * (rank.kernel.since_s or 1.0)
            return busy or (rank.kernel.io_bytes or 0) > AT_WORK_BYTES
    return False

"""The wiring of what is told of slow runs: pulses and collectives, a look into the reasons, a block on the terminal."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from safelaunch import black_box, black_box_reader
from safelaunch.cli.device_looks import DeviceLooks
from safelaunch.diagnosis import diagnose
from safelaunch.evidence import SLOW, arrivals, case, load, stacks, standing
from safelaunch.evidence.gather import gather
from safelaunch.model import Case, Evidence, GpuState, Incident, Verdict, WorkerGroup, WorkerProcess
from safelaunch.model.slow import Slowness
from safelaunch.pulse import USES_GROUPS, Pulse
from safelaunch.report import bundle
from safelaunch.watch.meetings import KEPT, Arrival, has_root
from safelaunch.watch.pauses import paused
from safelaunch.watch.slow import SlowWatch, Told

CALLS_S = 0.5  # how often the ranks' records of calls are read
CALLS_FULL_S = 1.0  # ... where all of them are new each time: there is no keeping up
LOAD_S, LOAD_EARLY_S = 10.0, 2.0  # how often /proc is read: often at first, to know what was usual
EARLY_LOADS, LOADS = 15, 60
RECENT_S = 30.0  # what is used is measured over this time at most
QUIET_S = 2.0  # a look at /proc before stacks are taken: these need CPU time themselves
ANSWER_S = 5.0  # how long ranks may take to dump their Flight Recorders
GATHER_S = 1.5
STANDING_S = 4.0
LOOKS = 10
SHOWN = 4  # ranks whose stacks are taken


class Slow:
    """What one run knows of its own slowness.

    Args:
        path: the black box, None where there is none.
        watch: the decisions.
        say: prints a line.
        show: prints a verdict that lies in a folder.
        folder: gives the folder of a new incident.
        host: this host's name.
        report: takes the folder, the case and the verdict of an incident.
        gpus: what the GPUs of the ranks do now, None where nobody knows.
    """

    def __init__(
        self,
        path: str | None,
        watch: SlowWatch,
        say: Callable[[str], None],
        show: Callable[[Verdict, str], None],
        folder: Callable[[], str],
        host: str,
        report: Callable[[str, Case, Verdict], None] = lambda *_: None,
        gpus: Callable[[WorkerGroup], tuple[GpuState, ...]] | None = None,
    ) -> None:
        self.watch = watch
        self.verdicts: list[Verdict] = []
        self._say = say
        self._show = show
        self._new_folder = folder
        self._host = host
        self._report = report
        self._gpus = gpus
        self._reader = self._open(path) if path else None
        self._attempt = -1
        self._loads: list[load.Load] = []
        self._next_load = self._next_calls = 0.0
        self._waiting: dict[int, tuple[WorkerProcess, int]] = {}
        self._dumped: list[WorkerProcess] = []
        self._asked = 0.0
        self._inquiry: Inquiry | None = None
        self._reading: Reading | None = None
        self._following: DeviceLooks | None = None
        self._told: dict[int, int] = {}
        self._returned: dict[int, dict[tuple[str, int], float]] = {}  # by rank, group and number: calls with a root

    def _open(self, path: str) -> black_box_reader.Reader | None:
        try:
            return black_box_reader.Reader(path)
        except (OSError, ValueError):
            return None  # the watch for hangs says so

    def poll(self, group: WorkerGroup, *, stalled: bool) -> None:
        """One round. `stalled` says that ranks hang at this moment, which is not slowness. A fault of ours ends the
        watch, and nothing else."""
        if self._reader is None:
            return
        try:
            self._poll(group, self._reader, stalled)
        except Exception as error:
            self._reader = None
            self._say(f"warning[SL902]: safelaunch's own fault, slow ranks are not watched for any more: {error!r}")

    def summary(self) -> list[str]:
        """What was told, in a line each, for the end of the run."""
        return [f"{verdict.code}: {verdict.summary}" for verdict in self.verdicts]

    # ---------------------------------------------------------------------------------------------- rounds

    def _poll(self, group: WorkerGroup, reader: black_box_reader.Reader, stalled: bool) -> None:
        now = time.monotonic()
        if group.attempt != self._attempt:
            self._attempt = group.attempt
            self.watch.restart()
            self._loads, self._waiting, self._inquiry, self._reading = [], {}, None, None
            self._following = None
            self._returned = {}
        if stalled or not group.started or len(group.alive) < len(group.workers):
            self.watch.interrupt()
            return
        pulses = {w.rank: p for w in group.alive if (p := reader.pulse(w.local_rank, w.pid)) is not None}
        if not pulses:
            return
        self._take_load(group, now)
        self._hear(group, reader, now)
        groups = any(pulse.state & USES_GROUPS for pulse in pulses.values()) and len(pulses) > 1
        suspicion = self.watch.poll(pulses, self._calls(group, reader, now), groups, now)
        for told in self.watch.over():
            self._ended(told)
        if self._inquiry is not None:
            if self._inquiry.case is not None or self._inquiry.failed:
                inquiry, self._inquiry = self._inquiry, None
                self._conclude(inquiry, now)
        elif suspicion is not None:
            self._inquiry = Inquiry(suspicion, group, self._loads, self._host, self._gpus)
        elif self.watch.wants_recorders(now) and not (self._waiting or self._reading or self._following):
            self._ask(group, reader, pulses, now)

    def _calls(self, group: WorkerGroup, reader: black_box_reader.Reader, now: float) -> dict[int, list[Arrival]]:
        """What is new in the ranks' records."""
        if now < self._next_calls:
            return {}
        found = {}
        for worker in group.alive:
            seen = reader.arrivals(worker.local_rank, worker.pid, self.watch.meetings.last(worker.rank))
            own = [_arrival(worker, call) for call in seen if len(call[-1]) == 6]
            if own and not own[-1].returned and has_root(own[-1].op) and seen[-1][5] == black_box.INSIDE:
                del own[-1]  # it is told again when it is over
            found[worker.rank] = own
            over = self._returned.setdefault(worker.rank, {})
            over.update({(call.group, call.seq): call.returned for call in own if has_root(call.op)})
            for key in list(over)[:-KEPT]:
                del over[key]
        full = any(len(own) >= black_box.ENTRIES - 1 for own in found.values())
        self._next_calls = now + (CALLS_FULL_S if full else CALLS_S) - 0.05
        return found

    def _take_load(self, group: WorkerGroup, now: float) -> None:
        if now < self._next_load or not self.watch.pace.bins:
            return
        self._loads.append(load.look(group.alive))
        early = len(self._loads) < EARLY_LOADS
        self._next_load = now + (LOAD_EARLY_S if early else LOAD_S)
        del self._loads[EARLY_LOADS:-LOADS]

    # ------------------------------------------------------------------------- Flight Recorders and GPUs

    def _ask(self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: dict[int, Pulse], now: float) -> None:
        """Ask who is late: where calls end on GPUs, these; else the Flight Recorders."""
        self.watch.asked(now)
        if self.watch.on_device:
            self._following = DeviceLooks(group, reader, *self.watch.follow_s(), now)
            return
        self._asked, self._dumped, self._waiting = now, [], {}
        for worker in group.alive:
            pulse = pulses.get(worker.rank)
            if pulse is None or not pulse.enqueued:
                self._waiting = {}
                self.watch.recorded({}, now, "this torch has no Flight Recorder that answers")
                return
            reader.ask(worker.local_rank)
            self._waiting[worker.rank] = worker, pulse.asked + 1

    def _hear(self, group: WorkerGroup, reader: black_box_reader.Reader, now: float) -> None:
        """Take in the answers: all of them, or none, since a rank that is missing may be the one. Reading them takes a
        hundredth of a second a rank, and is done beside."""
        if self._following is not None and self._following.poll(now):
            following, self._following = self._following, None
            self.watch.followed(following.looks, now, following.missing)
        for rank, (worker, asked) in list(self._waiting.items()):
            pulse = reader.pulse(worker.local_rank, worker.pid)
            if pulse is not None and pulse.answered >= asked:
                self._dumped.append(self._waiting.pop(rank)[0])
                if not self._waiting:
                    self._reading = Reading(self._dumped)
        if self._waiting and now - self._asked > ANSWER_S:
            self._waiting = {}
            self.watch.recorded({}, now, "the ranks did not answer when they were asked for their Flight Recorders")
        if self._reading is not None and self._reading.done:
            calls, missing, self._reading = self._reading.calls, self._reading.missing, None
            for rank, own in calls.items():
                over = self._returned.get(rank, {})  # of gloo the recorder does not know when a call was over
                calls[rank] = [call._replace(returned=over.get((call.group, call.seq), 0.0)) for call in own]
            if len(calls) < len(group.alive):
                calls = {}
            self.watch.recorded(calls, now, missing)

    # --------------------------------------------------------------------------------------------- telling

    def _conclude(self, inquiry: Inquiry, now: float) -> None:
        facts = inquiry.case
        if facts is None:
            self._say(f"warning[SL902]: safelaunch's own fault, why a run is slow is not known: {inquiry.failed}")
            self.watch.dismiss(inquiry.suspicion, now)
            return
        verdict = diagnose(facts)
        if verdict.kind == "none" or paused(facts.ranks):
            self.watch.dismiss(inquiry.suspicion, now)
            return
        begun = inquiry.suspicion.begun
        after = round(now - begun, 3) if begun is not None else None
        verdict = dataclasses.replace(verdict, detected_after_s=after, concluded_after_s=after)
        self.watch.tell(inquiry.suspicion, now)
        self._told[id(self.watch.told[inquiry.suspicion.kind])] = len(self.verdicts)
        folder, fault = bundle.write(self._new_folder(), facts, verdict, inquiry.evidence, case.stack_text)
        if fault:
            self._say(f"warning[SL902]: {fault}")
        if folder:
            self._report(folder, facts, verdict)
        self.verdicts.append(verdict)
        self._show(verdict, folder)

    def _ended(self, told: Told) -> None:
        place = self._told.pop(id(told), None)
        if place is None:
            return
        verdict, slowness = self.verdicts[place], told.slowness
        end = f"until about {slowness.unit} {self.watch.pace.count}"
        self.verdicts[place] = dataclasses.replace(verdict, summary=f"{verdict.summary}; {end}")
        who = f"rank{'s' * (len(slowness.ranks) > 1)} {', '.join(map(str, slowness.ranks))}: " if slowness.ranks else ""
        self._say(f"{verdict.code}: {who}no longer slow, at {slowness.unit} {self.watch.pace.count}")


def _arrival(worker: WorkerProcess, call: tuple[Any, ...]) -> Arrival:
    """A call as `black_box_reader.Reader.arrivals` gives it. Calls of other threads than the main one let nobody go."""
    ordinal, t, returned, seq, size, status, thread, peer, words = call
    op = words[0].decode("ascii", "replace") if thread == worker.pid else ""
    root = peer if status != black_box.ISSUED and returned >= 0 else -1
    group = words[1].decode("utf-8", "replace")
    return Arrival(ordinal, t, op, group, seq, size, words[3:5], root, max(returned, 0.0))


class Reading:
    """The dumps of Flight Recorders, read in a thread."""

    def __init__(self, workers: list[WorkerProcess]) -> None:
        self.calls: dict[int, list[Arrival]] = {}
        self.missing = ""
        self.done = False
        threading.Thread(target=self._run, args=(list(workers),), daemon=True).start()

    def _run(self, workers: list[WorkerProcess]) -> None:
        try:
            for worker in workers:
                self.calls[worker.rank] = [Arrival(*call) for call in arrivals.recorded(worker)]
        except Exception as error:
            self.calls, self.missing = {}, f"a Flight Recorder could not be read: {error}"
        self.done = True


class Inquiry:
    """A look into the reasons, in a thread: what ranks and node use, where ranks stand. `case` is None until it is
    done; `failed` says that it never will be."""

    def __init__(
        self,
        suspicion: Slowness,
        group: WorkerGroup,
        loads: list[load.Load],
        host: str,
        gpus: Callable[[WorkerGroup], tuple[GpuState, ...]] | None,
    ) -> None:
        self.suspicion = suspicion
        self.case: Case | None = None
        self.failed = ""
        self.evidence: tuple[Evidence, ...] = ()
        self._group = group
        self._loads = list(loads)
        self._host = host
        self._gpus = gpus
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.case = self._take()
        except Exception as error:  # whatever it is, the run goes on without our knowing why it is slow
            self.failed = repr(error)

    def _take(self) -> Case:
        slow, group = self.suspicion, self._group
        incident = Incident("slow", group.attempt, slow.ranks, time.monotonic())
        first, ticks = load.look(group.alive), load.ticks()
        time.sleep(QUIET_S)
        last, ticks_now = load.look(group.alive), load.ticks()
        others = load.others(ticks, ticks_now, last.t - first.t, os.getpid())
        usage, node = load.used(self._since(first), last)
        before = self._before()
        usage_before, node_before = load.used(*before) if before is not None else ((), None)
        gpus = self._gpus(group) if self._gpus is not None else ()
        some = self._some()
        self.evidence = gather(incident, group.alive, SLOW, GATHER_S) + gather(
            incident, some, (stacks.collect,), GATHER_S
        )
        shown = some[: max(2, len(slow.ranks[:2]) + 1)]
        stands = standing.look(shown, slow.ranks, LOOKS, time.monotonic() + STANDING_S)
        facts = case.build(incident, group, self.evidence, self._host, None, now=time.monotonic())
        slow = dataclasses.replace(
            slow,
            usage=usage,
            usage_before=usage_before,
            node=node,
            node_before=node_before,
            others=others,
            standing=stands,
        )
        return dataclasses.replace(facts, gpus=gpus, slow=slow)

    def _some(self) -> list[WorkerProcess]:
        """The ranks that are slow first, then others."""
        return sorted(self._group.alive, key=lambda w: (w.rank not in self.suspicion.ranks, w.rank))[:SHOWN]

    def _since(self, now: load.Load) -> load.Load:
        """The look from which on what is used is counted: of the time since it began."""
        begun = self.suspicion.begun if self.suspicion.begun is not None else 0.0
        known = [one for one in self._loads if one.t >= begun and one.t >= now.t - RECENT_S]
        return known[0] if known else now

    def _before(self) -> tuple[load.Load, load.Load] | None:
        """Two looks of the time before it began."""
        begun = self.suspicion.begun
        known = [one for one in self._loads if begun is not None and one.t <= begun]
        if len(known) < 2:
            return None
        return next((one for one in known if known[-1].t - one.t <= RECENT_S), known[0]), known[-1]

"""The wiring of what is told of slow runs: pulses and collectives, a look into the reasons, a block on the terminal."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from safelaunch import black_box, black_box_reader
from safelaunch.diagnosis.wording import names
from safelaunch.evidence import usage
from safelaunch.model import Verdict, WorkerGroup
from safelaunch.pulse import USES_GROUPS, Pulse
from safelaunch.run.arrivals import arrivals
from safelaunch.run.console import Console
from safelaunch.run.device_looks import DeviceLooks
from safelaunch.run.incidents import Incidents
from safelaunch.run.inquiry import Inquiry
from safelaunch.run.judge import judged
from safelaunch.run.own_faults import contained
from safelaunch.run.pulses import pulses_of
from safelaunch.run.recorders import Recorders
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.meetings import KEPT, Arrival
from safelaunch.watch.pauses import paused
from safelaunch.watch.slow import SlowWatch, Told

if TYPE_CHECKING:
    from safelaunch.model.slow import Slowness
    from safelaunch.run.slow_nodes import SlowNodes

CALLS_S = 0.5  # how often the ranks' records of calls are read
CALLS_FULL_S = 1.0  # ... where all of them are new each time: there is no keeping up
LOAD_S, LOAD_EARLY_S = 10.0, 2.0  # how often /proc is read: often at first, to know what was usual
EARLY_LOADS, LOADS = 15, 60


class Slow:
    """What one run knows of its own slowness.

    Args:
        reader: of the black box, None where there is none, or where nobody is to watch.
        watch: the decisions.
        console: of the run.
        incidents: of the run.
        this_node: for what its GPUs do.
        nodes: what is said of the ranks of all nodes; None in a job of one node, which loads nothing for it.
    """

    def __init__(
        self,
        reader: black_box_reader.Reader | None,
        watch: SlowWatch,
        console: Console,
        incidents: Incidents,
        this_node: ThisNode,
        nodes: SlowNodes | None = None,
    ) -> None:
        self.verdicts: list[Verdict] = []
        self._reader = reader
        self._watch = watch
        self._console = console
        self._incidents = incidents
        self._this_node = this_node
        self._nodes = nodes
        self._attempt = -1
        self._next_load = self._next_calls = 0.0
        self._told: dict[int, int] = {}
        self._restart()

    def _restart(self) -> None:
        """Of another attempt nothing counts."""
        self._watch.restart()
        self._loads: list[usage.Load] = []
        self._inquiry: Inquiry | None = None
        self._asked: Recorders | None = None
        self._following: DeviceLooks | None = None
        self._returned: dict[int, dict[tuple[str, int], float]] = {}  # by rank, group and number

    def poll(self, group: WorkerGroup, *, stalled: bool) -> None:
        """One round. `stalled` says that ranks hang at this moment, which is not slowness. A fault of ours ends the
        watch, and nothing else."""
        if self._reader is None:
            return
        with contained(self._console.degraded, "slow ranks are not watched for any more"):
            self._poll(group, self._reader, stalled)
            return
        self._reader = None

    @property
    def all_verdicts(self) -> list[Verdict]:
        """Those of this node, and those over all nodes."""
        return [*self.verdicts, *(self._nodes.verdicts if self._nodes is not None else ())]

    def summary(self) -> list[str]:
        """What was told, in a line each, for the end of the run."""
        lines = [f"the run was slow: {verdict.code}: {verdict.summary}" for verdict in self.all_verdicts]
        stalled = self._watch.stalls.in_all() if self._reader is not None else None
        if stalled is not None:
            lines.append(
                f"rank {stalled.rank} stopped for a moment {stalled.count} times while its peers waited: "
                f"{stalled.seconds:.0f} s of {stalled.over:.0f} s in all ({stalled.share:.0%}), "
                f"at most {stalled.longest:.1f} s at once"
            )
        return lines

    # ---------------------------------------------------------------------------------------------- rounds

    def _poll(self, group: WorkerGroup, reader: black_box_reader.Reader, stalled: bool) -> None:
        now = time.monotonic()
        if group.attempt != self._attempt:
            self._attempt = group.attempt
            self._restart()
        if stalled or not group.started or len(group.alive) < len(group.workers):
            self._watch.interrupt()
            return
        looks = pulses_of(reader, group.alive)
        if looks:
            self._round(group, reader, looks, now)

    def _round(self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: dict[int, Pulse], now: float) -> None:
        """One round over ranks that all run."""
        self._take_load(group, now)
        self._hear(group, now)
        groups = any(pulse.state & USES_GROUPS for pulse in pulses.values()) and len(pulses) > 1
        calls = self._calls(group, reader, now)
        suspicion = self._watch.poll(pulses, calls, groups, now)
        if self._nodes is not None:
            self._nodes.round(group, reader, pulses, self._returned, self._loads, calls, now)
        for told in self._watch.over():
            self._ended(told)
        if self._inquiry is not None:
            self._take_in(self._inquiry, now)
        elif suspicion is not None:
            self._inquire(suspicion, group, now)
        elif self._watch.wants_recorders(now) and self._asked is None and self._following is None:
            self._ask(group, reader, pulses, now)

    def _inquire(self, suspicion: Slowness, group: WorkerGroup, now: float) -> None:
        """Look into it, unless ranks of other nodes may be the ones: then these are asked first."""
        if self._nodes is not None:
            if self._nodes.holds(suspicion, now):
                return
            suspicion = self._nodes.completed(suspicion)
        self._inquiry = Inquiry(suspicion, group, self._loads, self._this_node, self._console.degraded)

    def _ask(self, group: WorkerGroup, reader: black_box_reader.Reader, pulses: dict[int, Pulse], now: float) -> None:
        """Ask who is late: where calls end on GPUs, these; else the Flight Recorders."""
        self._watch.asked(now)
        if self._watch.on_device:
            self._following = DeviceLooks(group, reader, *self._watch.follow_s(), now)
        else:
            self._asked = Recorders(group, reader, pulses, now)

    def _hear(self, group: WorkerGroup, now: float) -> None:
        """Take in the answers."""
        if self._following is not None and self._following.poll(now):
            following, self._following = self._following, None
            self._watch.followed(following.looks, now, following.missing)
        if self._asked is not None and self._asked.poll(now):
            asked, self._asked = self._asked, None
            self._watch.recorded(asked.told(group.alive, self._returned), now, asked.missing)

    def _calls(self, group: WorkerGroup, reader: black_box_reader.Reader, now: float) -> dict[int, list[Arrival]]:
        """What is new in the ranks' records."""
        if now < self._next_calls:
            return {}
        found = {}
        for worker in group.alive:
            seen = reader.arrivals(worker.local_rank, worker.pid, self._watch.meetings.last(worker.rank))
            found[worker.rank] = own = arrivals(worker, seen)
            over = self._returned.setdefault(worker.rank, {})
            over.update({(call.group, call.seq): call.returned for call in own})
            for key in list(over)[:-KEPT]:
                del over[key]
        full = any(len(own) >= black_box.ENTRIES - 1 for own in found.values())
        self._next_calls = now + (CALLS_FULL_S if full else CALLS_S) - 0.05
        return found

    def _take_load(self, group: WorkerGroup, now: float) -> None:
        if now < self._next_load or not self._watch.pace.bins:
            return
        self._loads.append(usage.look(group.alive))
        early = len(self._loads) < EARLY_LOADS
        self._next_load = now + (LOAD_EARLY_S if early else LOAD_S)
        del self._loads[EARLY_LOADS:-LOADS]

    # --------------------------------------------------------------------------------------------- telling

    def _take_in(self, inquiry: Inquiry, now: float) -> None:
        if not inquiry.done:
            return
        self._inquiry = None
        facts = inquiry.case
        verdict = judged(facts, self._console.degraded) if facts is not None else None
        if facts is None or verdict is None or verdict.kind == "none" or paused(facts.ranks):
            self._watch.dismiss(inquiry.suspicion, now)
            return
        begun = inquiry.suspicion.begun
        after = round(now - begun, 3) if begun is not None else None
        verdict = dataclasses.replace(verdict, detected_after_s=after, concluded_after_s=after)
        self._watch.tell(inquiry.suspicion, now)
        self._told[id(self._watch.told[inquiry.suspicion.kind])] = len(self.verdicts)
        folder = self._incidents.write(facts, verdict, inquiry.evidence, reasons=False)
        self._incidents.page_later(folder, facts, verdict)
        self.verdicts.append(verdict)
        self._console.slow_verdict(verdict, folder)

    def _ended(self, told: Told) -> None:
        place = self._told.pop(id(told), None)
        if place is None:
            return
        verdict, slowness = self.verdicts[place], told.slowness
        end = f"until about {slowness.unit} {self._watch.pace.count}"
        self.verdicts[place] = dataclasses.replace(verdict, summary=f"{verdict.summary}; {end}")
        who = f"{names(slowness.ranks)}: " if slowness.ranks else ""
        self._console.aside(f"{verdict.code}: {who}no longer slow, at {slowness.unit} {self._watch.pace.count}")

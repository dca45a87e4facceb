"""The look into the reasons of a slow run, beside the watch: it takes seconds."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Sequence

from safelaunch.evidence import SLOW, case, stack_samples, stacks, usage
from safelaunch.evidence.gather import gather
from safelaunch.model import Case, Evidence, Incident, WorkerGroup, WorkerProcess
from safelaunch.model.slow import Slowness
from safelaunch.run.own_faults import contained
from safelaunch.run.this_node import ThisNode

RECENT_S = 30.0  # what is used is measured over this time at most
QUIET_S = 2.0  # a look at /proc before stacks are taken: these need CPU time themselves
GATHER_S = 1.5
STANDING_S = 4.0
LOOKS = 10
SHOWN = 4  # ranks whose stacks are taken


class Inquiry:
    """What ranks and node use and where ranks stand, seen in a thread.

    `done` says that it is over; `case` is None then where it failed, which has been told.

    Args:
        suspicion: what is looked into.
        group: the ranks.
        loads: the looks at /proc so far.
        this_node: for what its GPUs do.
        tell: takes the sentence about a fault of ours.
    """

    def __init__(
        self,
        suspicion: Slowness,
        group: WorkerGroup,
        loads: Sequence[usage.Load],
        this_node: ThisNode,
        tell: Callable[[str], None],
    ) -> None:
        self.suspicion = suspicion
        self.case: Case | None = None
        self.done = False
        self.evidence: tuple[Evidence, ...] = ()
        self._group = group
        self._loads = list(loads)
        self._this_node = this_node
        self._tell = tell
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contained(self._tell, "why a run is slow is not known"):
            self.case = self._take()
        self.done = True

    def _take(self) -> Case:
        slow, group = self.suspicion, self._group
        incident = Incident("slow", group.attempt, slow.ranks, time.monotonic())
        first, ticks = usage.look(group.alive), usage.ticks()
        time.sleep(QUIET_S)
        last, ticks_now = usage.look(group.alive), usage.ticks()
        others = usage.others(ticks, ticks_now, last.t - first.t, os.getpid())
        children = usage.below(ticks, ticks_now, last.t - first.t, group.alive)
        used, node = usage.used(self._since(first), last)
        before = self._before()
        used_before, node_before = usage.used(*before) if before is not None else ((), None)
        gpus = self._this_node.gpus(group)
        some = self._some()
        self.evidence = gather(incident, group.alive, SLOW, GATHER_S) + gather(
            incident, some, (stacks.collect,), GATHER_S
        )
        shown = some[: max(2, len(slow.ranks[:2]) + 1)]
        stands = stack_samples.look(shown, slow.ranks, LOOKS, time.monotonic() + STANDING_S)
        facts = case.build(incident, group, self.evidence, self._this_node.name, None, now=time.monotonic())
        slow = dataclasses.replace(
            slow,
            usage=used,
            usage_before=used_before,
            node=node,
            node_before=node_before,
            others=others,
            children=children,
            standing=stands,
        )
        return dataclasses.replace(facts, gpus=gpus, slow=slow)

    def _some(self) -> list[WorkerProcess]:
        """The ranks that are slow first, then others."""
        return sorted(self._group.alive, key=lambda w: (w.rank not in self.suspicion.ranks, w.rank))[:SHOWN]

    def _since(self, now: usage.Load) -> usage.Load:
        """The look from which on what is used is counted: of the time since it began."""
        begun = self.suspicion.begun if self.suspicion.begun is not None else 0.0
        known = [one for one in self._loads if one.t >= begun and one.t >= now.t - RECENT_S]
        return known[0] if known else now

    def _before(self) -> tuple[usage.Load, usage.Load] | None:
        """Two looks of the time before it began."""
        begun = self.suspicion.begun
        known = [one for one in self._loads if begun is not None and one.t <= begun]
        if len(known) < 2:
            return None
        return next((one for one in known if known[-1].t - one.t <= RECENT_S), known[0]), known[-1]

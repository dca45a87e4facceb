"""Slow runs of several nodes: what this one tells the others, and what it says of their ranks."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Mapping, Sequence

from safelaunch import black_box_reader
from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import AskPaces, Message, Paced, PaceTold, TellPace, TellWhy, WhyTold
from safelaunch.codes import CATALOGUE, EXIT_OK
from safelaunch.diagnosis.wording import names
from safelaunch.evidence import usage
from safelaunch.model import Verdict, WorkerGroup
from safelaunch.model.hosts import host_name
from safelaunch.model.slow import RanksOfNode, Slowness
from safelaunch.pulse import Pulse
from safelaunch.run.console import Console
from safelaunch.run.incidents import Incidents
from safelaunch.run.job_nodes import JobNodes
from safelaunch.run.pace_hub import PaceHub
from safelaunch.run.pace_reports import PaceReporter, Round
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.meetings import Arrival
from safelaunch.watch.slow import SlowWatch

# For the hub's answer: two looks, and what the nodes say of their ranks; then a node speaks for itself.
PATIENCE_S = 30.0


class SlowNodes:
    """What a run knows of slow ranks on all nodes. Used by the supervisor's loop alone.

    Args:
        nodes: of the job.
        watch: of this node's pace.
        console: of the run.
        incidents: of the run.
        this_node: for what its GPUs do.
    """

    def __init__(
        self, nodes: JobNodes, watch: SlowWatch, console: Console, incidents: Incidents, this_node: ThisNode
    ) -> None:
        self.verdicts: list[Verdict] = []
        self._inbox = nodes.inboxes.pace
        self._watch = watch
        self._console = console
        self._incidents = incidents
        self._teller = PaceReporter(watch, this_node, console.degraded)
        self._hub = PaceHub(watch, console.degraded)
        self._link: Link | None = None
        self._restart()

    def _restart(self) -> None:
        self._teller.restart()
        self._hub.restart()
        self._asked: float | None = None  # since when this node waits for an answer
        self._paced: Paced | None = None  # ... and what it was
        self._told: Verdict | None = None

    def round(
        self,
        group: WorkerGroup,
        reader: black_box_reader.Reader,
        pulses: Mapping[int, Pulse],
        returned: Mapping[int, Mapping[tuple[str, int], float]],
        loads: Sequence[usage.Load],
        calls: Mapping[int, Sequence[Arrival]],
        now: float,
    ) -> None:
        """One round of `Slow` over ranks that all run: see `Round`; `calls` are new in the ranks' records."""
        self.keep(calls)
        self.poll(Round(group, reader, pulses, returned, loads, now))

    def keep(self, calls: Mapping[int, Sequence[Arrival]]) -> None:
        """What is new in the ranks' records."""
        if self._link is not None:
            self._teller.keep(calls)

    def poll(self, at: Round) -> None:
        """One round: hear the others, and answer them."""
        while (heard := self._next()) is not None:
            link, node, message = heard
            if message is None:
                self._link = link
                self._restart()
            elif link is self._link:
                self._take_in(link, node, message, at)
        if self._link is not None:
            self._teller.poll(self._link, at)
            self._hub.poll(self._link, at.now)

    def _next(self) -> tuple[Link, int, Message | None] | None:
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            return None

    def _take_in(self, link: Link, node: int, message: Message, at: Round) -> None:
        if isinstance(message, (TellPace, TellWhy)):
            self._teller.asked(link, message, at)
        elif isinstance(message, (PaceTold, WhyTold)):
            self._hub.take_in(node, message)
        elif isinstance(message, AskPaces):
            self._hub.want()
        elif isinstance(message, Paced):
            self._paced = message
            if message.verdict is not None:
                self._say(link, message.verdict)
            elif message.over:
                self._end(message.over)

    # ------------------------------------------------------------------------------------------ what is suspected

    def holds(self, suspicion: Slowness, now: float) -> bool:
        """Whether a suspicion of this node waits, or is settled: ranks of other nodes may be the ones, and the hub is
        asked first. A node that gets no answer speaks for itself.

        Args:
            suspicion: of this node's watch.
            now: CLOCK_MONOTONIC.
        """
        link = self._link
        if link is None or not link.peers.linked or suspicion.stalled is not None:
            return False
        if self._asked is None:
            self._asked, self._paced = now, None
            link.to_hub(AskPaces())
            return True
        if self._paced is None and now - self._asked < PATIENCE_S + self._watch.on_device * self._watch.follow_s()[0]:
            return True
        paced, self._asked = self._paced, None
        if paced is None or (paced.unknown and paced.verdict is None):
            return False
        if paced.verdict is not None:
            self._watch.tell(suspicion, now)  # it is said, whoever it is
            return True
        if suspicion.kind == "straggler" and suspicion.source != "loader":
            self._watch.dismiss(suspicion, now)  # among all ranks it does not stand out
            return True
        return False

    def completed(self, suspicion: Slowness) -> Slowness:
        """The suspicion with what a look at all nodes has said: that nobody is late."""
        paced, link = self._paced, self._link
        if paced is None or link is None or paced.unknown or paced.verdict is not None:
            return suspicion
        nodes = tuple(
            RanksOfNode(node.host, tuple(range(node.first_rank, node.first_rank + node.ranks)))
            for _, node in sorted(link.peers.nodes.items())
        )
        return dataclasses.replace(suspicion, nodes=nodes, link=paced.link)

    # --------------------------------------------------------------------------------------------------- telling

    def _say(self, link: Link, verdict: Verdict) -> None:
        """Say it, once: it is a notice, whoever has sent it, and without advice that is not this node's own."""
        if verdict.code not in CATALOGUE or verdict.kind != "slow":
            return
        if self._told is not None and self._told.culprit_ranks == verdict.culprit_ranks:
            return
        is_hub, folder = link.peers.is_hub, ""
        verdict = dataclasses.replace(verdict, exit_code=EXIT_OK, remedy=verdict.remedy if is_hub else "")
        if is_hub and self._hub.case is not None:
            folder = self._incidents.write(self._hub.case, verdict, (), reasons=False)
            self._incidents.page_later(folder, self._hub.case, verdict)
        self._told = verdict
        self.verdicts.append(verdict)
        said = verdict
        if not is_hub:
            first = link.peers.nodes.get(link.peers.hub if link.peers.hub is not None else -1)
            where = host_name(first.host) if first is not None else "the first node"
            said = dataclasses.replace(
                verdict, because=(), remedy=f"all of it is in the output of {where}, and in result.json"
            )
        self._console.slow_verdict(said, folder)

    def _end(self, step: int) -> None:
        told, self._told = self._told, None
        if told is None:
            return
        unit = self._watch.pace.unit or "step"
        place = next(n for n, one in enumerate(self.verdicts) if one is told)
        self.verdicts[place] = dataclasses.replace(told, summary=f"{told.summary}; until about {unit} {step}")
        self._console.aside(f"{told.code}: {names(told.culprit_ranks)}: no longer slow, at {unit} {step}")

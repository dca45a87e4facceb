"""What this node tells the hub of how fast its ranks are, and of what they do."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from safelaunch import black_box_reader
from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import PaceTold, TellPace, TellWhy, WhyTold
from safelaunch.evidence import usage
from safelaunch.model import WorkerGroup
from safelaunch.model.slow_nodes import NodePace
from safelaunch.pulse import Pulse
from safelaunch.run.device_looks import DeviceLooks
from safelaunch.run.digest import digest
from safelaunch.run.inquiry import Inquiry
from safelaunch.run.recorders import Recorders
from safelaunch.run.this_node import ThisNode
from safelaunch.watch.lateness import SECONDS, STEPS
from safelaunch.watch.meetings import Arrival
from safelaunch.watch.pace import BINS, window
from safelaunch.watch.slow import SlowWatch
from safelaunch.watch.slow_nodes import told_calls
from safelaunch.watch.slowness import of_bins

CALLS = 1 << 17  # of the whole job that are told in a look: the hub needs some 6 us for each
MOST = 1024  # ... of a rank: as many as 20 steps of 50 calls
ALL = 128  # ranks of a job, all of which are told of; of more, the first, the last and a late one of each node
NO_STEPS = "its ranks count no steps yet"
NO_CLOCK = "its clock is not known yet"


@dataclass(frozen=True)
class Round:
    """One round over ranks that all run: what `Slow` has at hand.

    `returned` is when calls of Python were over, by rank, group and number; `now` is CLOCK_MONOTONIC.
    """

    group: WorkerGroup
    reader: black_box_reader.Reader
    pulses: Mapping[int, Pulse]
    returned: Mapping[int, Mapping[tuple[str, int], float]]
    loads: Sequence[usage.Load]
    now: float


class PaceReporter:
    """This node's answers to the hub. Used by the supervisor's loop alone.

    Args:
        watch: of this node's pace.
        this_node: for what its GPUs do.
        tell: takes the sentence about a fault of ours.
    """

    def __init__(self, watch: SlowWatch, this_node: ThisNode, tell: Callable[[str], None]) -> None:
        self._watch = watch
        self._this_node = this_node
        self._tell = tell
        self.restart()

    def restart(self) -> None:
        """Of another attempt nothing counts."""
        self._kept: dict[int, deque[Arrival]] = {}
        self._number: int | None = None
        self._recorders: Recorders | None = None
        self._looks: DeviceLooks | None = None
        self._inquiry: tuple[int, Inquiry] | None = None

    def keep(self, calls: Mapping[int, Sequence[Arrival]]) -> None:
        """What is new in the ranks' own records."""
        for rank, own in calls.items():
            self._kept.setdefault(rank, deque(maxlen=MOST)).extend(own)

    def asked(self, link: Link, message: TellPace | TellWhy, at: Round) -> None:
        """The hub has asked; the answer may take seconds, and `poll` gives it."""
        if isinstance(message, TellWhy):
            slow = message.slow
            begun = slow.begun - (link.peers.offset_s or 0.0) if slow.begun is not None else None
            slow = dataclasses.replace(slow, begun=begun)
            inquiry = Inquiry(slow, at.group, at.loads, self._this_node, self._tell)
            self._inquiry = message.number, inquiry
            return
        self._number = message.number
        if self._watch.on_device:
            self._looks = DeviceLooks(at.group, at.reader, *self._watch.follow_s(), at.now)
        elif not self._watch.sees_meetings():
            self._recorders = Recorders(at.group, at.reader, at.pulses, at.now)

    def poll(self, link: Link, at: Round) -> None:
        """Answer, where there is an answer."""
        if self._inquiry is not None and self._inquiry[1].done:
            (number, inquiry), self._inquiry = self._inquiry, None
            case = inquiry.case
            link.to_hub(WhyTold(number, digest(case, link.peers.offset_s or 0.0) if case is not None else None))
        if self._number is None:
            return
        pace = self._pace(link, at)
        if pace is not None:
            link.to_hub(PaceTold(self._number, pace))
            self._number = self._recorders = self._looks = None

    def _pace(self, link: Link, at: Round) -> NodePace | None:
        """How fast the ranks are; None while that is not known yet."""
        error, bins = link.peers.clock_error_s, self._watch.alike()
        if error is None or not bins:
            return NodePace(unknown=NO_CLOCK if error is None else NO_STEPS)
        start = window(bins, STEPS, SECONDS, 1)
        paces = of_bins("slower", bins, start or 0, at.pulses).paces
        offset = link.peers.offset_s or 0.0
        pace = NodePace(
            self._watch.pace.unit, self._watch.pace.each() or 0.0, t=at.now + offset, clock_error_s=error, paces=paces
        )
        if self._looks is not None:
            return self._of_devices(pace, self._looks, at)
        if self._recorders is not None:
            if not self._recorders.poll(at.now):
                return None
            recorded = self._recorders.told(at.group.alive, at.returned)
            unknown = self._recorders.missing or ("" if recorded else "a rank has ended")
            return self._of_calls(dataclasses.replace(pace, source="recorder", unknown=unknown), recorded, at)
        own = {rank: list(calls) for rank, calls in self._kept.items() if rank in at.pulses}
        return self._of_calls(dataclasses.replace(pace, source="calls"), own, at)

    def _of_calls(self, pace: NodePace, calls: Mapping[int, Sequence[Arrival]], at: Round) -> NodePace:
        world, nodes = at.group.world_size, at.group.world_size / max(len(at.group.workers), 1)
        late = self._watch.told["straggler"].slowness.ranks[:1] if "straggler" in self._watch.told else ()
        shown = set(calls) if world <= ALL else {min(calls, default=0), max(calls, default=0), *late}
        most = int(min(MOST, CALLS / (world if world <= ALL else 2 * nodes)))
        kinds, ranks = told_calls({rank: own for rank, own in calls.items() if rank in shown}, most, at.now)
        return dataclasses.replace(pace, kinds=kinds, calls=ranks)

    def _of_devices(self, pace: NodePace, looks: DeviceLooks, at: Round) -> NodePace | None:
        if not looks.poll(at.now):
            return None
        self._watch.followed(looks.looks, at.now, looks.missing)
        judged = self._watch.devices[-1] if self._watch.devices else None
        if judged is None or judged.ended < at.now - self._watch.follow_s()[0] - BINS:
            return dataclasses.replace(pace, source="device", unknown=looks.missing or "its GPUs were not seen")
        return dataclasses.replace(pace, source="device", devices=judged.paces)

"""The hub's looks at how fast the ranks of all nodes are: when they are due, and what they come to."""

from __future__ import annotations

import dataclasses
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import Message, Paced, PaceTold, TellPace, TellWhy, WhyTold
from safelaunch.evidence.offline.nodes import one_case
from safelaunch.model import Case, Verdict
from safelaunch.model.slow import Slowness
from safelaunch.model.slow_nodes import NodePace
from safelaunch.run.judge import judged
from safelaunch.run.own_faults import contained
from safelaunch.watch.pauses import paused
from safelaunch.watch.slow import ANSWER_S, ASK_AGAIN, ASK_S, FRESH_S, SlowWatch
from safelaunch.watch.slow_nodes import Compared, compare

Told = TypeVar("Told")
REST_S = 5.0  # between two looks, whoever asks
MOST_S = 600.0  # ... and where nobody does: each costs the hub a second in a large job
WHY_S = 12.0  # for the nodes to say what their ranks and processes do (run.inquiry)
CULPRITS, OTHERS = 2, 2  # nodes that are asked for it
UNTOLD = "some come later, for no reason of their own that is known"


class PaceHub:
    """What the hub does; nothing, where this node is another.

    Args:
        watch: of this node's pace.
        tell: takes the sentence about a fault of ours.
    """

    def __init__(self, watch: SlowWatch, tell: Callable[[str], None]) -> None:
        self.case: Case | None = None  # of the latest verdict
        self._watch = watch
        self._tell = tell
        self._numbers = itertools.count(1)
        self.restart()

    def restart(self) -> None:
        """Of another attempt nothing counts."""
        self._inbox: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._wanted = False
        self._told: Verdict | None = None
        self._pause, self._next, self._ended, self._longer = ASK_S, 0.0, 0.0, 0.0

    def want(self) -> None:
        """A node asks for a look."""
        self._wanted = True

    def take_in(self, node: int, message: PaceTold | WhyTold) -> None:
        """A node has answered."""
        self._inbox.put((node, message))

    def poll(self, link: Link, now: float) -> None:
        """Begin a look, where one is due."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._thread is not None:
            self._thread, self._ended = None, now
            self._next = now + (min(self._pause, FRESH_S) if self._told is not None else self._pause)
        if self._watch.pace.bins and link.peers.is_hub and link.peers.linked and self._due(now):
            self._wanted, self._pause = False, min(ASK_AGAIN * self._pause, MOST_S)
            self._inbox = queue.SimpleQueue()
            self._thread = threading.Thread(target=self._look, args=(link, self._inbox), daemon=True)
            self._thread.start()

    def _due(self, now: float) -> bool:
        self._next = self._next or self._watch.pace.bins[0].t + ASK_S
        longer = self._watch.longer
        if longer - self._longer > ASK_S and now >= self._watch.longer_due():
            self._longer, self._wanted = longer, True
        return now >= self._next or (self._wanted and now - self._ended > REST_S)

    # -------------------------------------------------------------------------------------------- in a thread

    def _look(self, link: Link, inbox: queue.SimpleQueue[tuple[int, Message]]) -> None:
        found = Paced(unknown="the comparison of the nodes has failed")
        with contained(self._tell, "slow ranks of several nodes are not compared"):
            found = self._paced(link, inbox)
        if inbox is self._inbox:  # else it is of an attempt before
            link.to_all(found)

    def _paced(self, link: Link, inbox: queue.SimpleQueue[tuple[int, Message]]) -> Paced:
        compared = self._compared(link, inbox)
        if compared.slow is not None and compared.slow.on_device:
            # Who saves or evaluates now and then is not late: the next look has to say the same.
            again = self._compared(link, inbox)
            same = again.slow is not None and again.slow.ranks == compared.slow.ranks
            compared = again if same else Compared(unknown=again.unknown or "the GPUs that come last change")
        told, slow = self._told, compared.slow
        if slow is None:
            return self._nobody(compared)
        if told is not None and told.culprit_ranks == slow.ranks:
            return Paced(told)
        verdict = self._verdict(link, inbox, slow)
        self._told = verdict or told
        return Paced(self._told, "" if verdict is not None else UNTOLD)

    def _nobody(self, compared: Compared) -> Paced:
        """What is said where nobody is late, or where that is not known."""
        if compared.unknown or self._told is None:
            return Paced(self._told, compared.unknown, compared.link)
        self._told = None
        return Paced(over=max(self._watch.pace.count, 1))

    def _compared(self, link: Link, inbox: queue.SimpleQueue[tuple[int, Message]]) -> Compared:
        nodes = dict(link.peers.nodes)
        number = next(self._numbers)
        link.to_all(TellPace(number))
        follow = self._watch.follow_s()[0] if self._watch.on_device else 0.0
        told = _gathered(inbox, number, PaceTold, nodes, ANSWER_S + follow)
        paces: dict[int, NodePace] = {node: one.pace for node, one in told.items() if one.pace is not None}
        hosts = {node: one.host for node, one in nodes.items()}
        silent = sorted(set(nodes) - set(paces))
        if silent:
            return Compared(unknown=f"{hosts[silent[0]] or f'node {silent[0]}'} has not told how fast its ranks are")
        return compare(paces, hosts, self._watch.pace.at)

    def _verdict(self, link: Link, inbox: queue.SimpleQueue[tuple[int, Message]], slow: Slowness) -> Verdict | None:
        """What is said of ranks that are late: their nodes, and some others to be compared with, tell what they do."""
        numbers = sorted(link.peers.nodes)
        late = [node for node, one in zip(numbers, slow.nodes, strict=True) if one.late]
        asked = late[:CULPRITS] + [node for node in numbers if node not in late][:OTHERS]
        number = next(self._numbers)
        for node in asked:
            link.to_node(node, TellWhy(number, slow))
        told = _gathered(inbox, number, WhyTold, asked, WHY_S)
        cases = [case for node in asked if (one := told.get(node)) is not None and (case := one.case) is not None]
        if late[0] not in told or told[late[0]].case is None:
            return None
        self.case = case = merged(cases, slow)
        verdict = judged(case, self._tell)
        if verdict.kind != "slow" or paused(case.ranks):
            return None
        hosts = [one.host for one in slow.nodes if one.late]
        begun = slow.begun
        after = round(time.monotonic() - begun, 3) if begun is not None else None
        return dataclasses.replace(verdict, host=", ".join(hosts), detected_after_s=after, concluded_after_s=after)


def _gathered(
    inbox: queue.SimpleQueue[tuple[int, Message]], number: int, kind: type[Told], nodes: Iterable[int], seconds: float
) -> dict[int, Told]:
    """The answers with this number, by node rank, once all have come or the time is over."""
    found: dict[int, Told] = {}
    waiting, until = set(nodes), time.monotonic() + seconds
    while waiting and (left := until - time.monotonic()) > 0:
        try:
            node, message = inbox.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(message, kind) and getattr(message, "number", None) == number:
            found[node] = message
            waiting.discard(node)
    return found


def merged(cases: list[Case], slow: Slowness) -> Case:
    """One case of a slow run over several nodes.

    Args:
        cases: of these nodes, that of the one whose ranks are late first: what belongs to a node alone is of that one.
        slow: what the comparison of all ranks has said.
    """
    seen = [case.slow for case in cases if case.slow is not None]
    first = cases[0]
    by_host: Mapping[str, Slowness] = {case.host: case.slow for case in cases if case.slow is not None}
    nodes = tuple(
        dataclasses.replace(one, usage=by_host[one.host].node) if one.host in by_host else one for one in slow.nodes
    )
    case = one_case(cases)
    own = first.slow or slow
    slow = dataclasses.replace(
        slow,
        usage=tuple(one for each in seen for one in each.usage),
        usage_before=tuple(one for each in seen for one in each.usage_before),
        node=own.node,
        node_before=own.node_before,
        others=own.others,
        children=own.children,
        standing=tuple(one for each in seen for one in each.standing),
        nodes=nodes,
    )
    return dataclasses.replace(case, incident=first.incident, host=first.host, gpus=first.gpus, slow=slow)

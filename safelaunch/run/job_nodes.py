"""The nodes of a job: one verdict over all of them.

A thread answers the hub and, where this node is the hub, puts the cases of all nodes together. A node acts on what the
others say only where its own ranks have failed or wait.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from safelaunch.cluster.link import Link
from safelaunch.cluster.listener import Listening, listen
from safelaunch.cluster.messages import Ends, Judged, Look, Message, Seen, Suspect
from safelaunch.cluster.secret import VARIABLE, SecretError, job_key
from safelaunch.codec import checked
from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import infra
from safelaunch.evidence.offline.nodes import one_case
from safelaunch.model import Case, Verdict, WorkerGroup
from safelaunch.model.hosts import host_name
from safelaunch.model.nodes import LostNode, Nodes
from safelaunch.run.console import Console
from safelaunch.run.digest import digest
from safelaunch.run.judge import Judge
from safelaunch.run.own_faults import contained

ANSWER_S = 2.0  # for the nodes to take a look and answer
VERDICT_S = 2.5  # for the verdict over all nodes; what a failed rank leaves is kept back for 5 s (agent.workers)
NODE_S = 0.05  # more of the second for each node, and half of that of the first: the hub reads one case after the other
NODES_S = 12.0  # ... but no more than this: it needs 4 s of a core for 8,192 ranks (benchmarks/scale.py)
GOODBYE_S = 0.3  # between what a node says last and its goodbye there is next to nothing
CLOSED_S = 0.5  # a connection that was closed for so long, while ranks fail, is no accident
LOST_WAIT_S = 4.0  # for a node to be given up, when torch's agent has already failed
ENDED_S = 2.0  # for a rank to wait for others that another node has ended
STILL_S = 5.0  # ... and for those of a node that is lost
OUTLIVED_S = 15.0  # what a rank may still do by itself after a node was lost
UNLINKED_S = 30.0
POLL_S = 0.1
AGAIN_S = 0.9  # a node's next look, which is to confirm the one before, is later: `CONFIRM_S`, and what a look takes
AT_ONCE = 2048  # messages


@dataclass
class _Inquiry:
    """One look at all nodes, at the hub."""

    number: int
    until: float
    cases: dict[int, Case] = field(default_factory=dict)  # by node rank
    answered: set[int] = field(default_factory=set)
    asked: list[tuple[int, int]] = field(default_factory=list)  # `Judged.asked`


@dataclass(frozen=True)
class _Concluded:
    """What the latest look at all nodes has come to, at the hub. It holds for those as well who notice a little later,
    and whose case is in it: another look would take as long, and tell the same."""

    t: float
    verdict: Verdict
    kind: str
    nodes: frozenset[int]

    def holds(self, node: int, case: Case) -> bool:
        is_fresh = time.monotonic() - self.t < AGAIN_S
        return is_fresh and bool(self.verdict.culprit_ranks) and case.incident.kind == self.kind and node in self.nodes


class JobNodes:
    """What this node knows of the others.

    Args:
        endpoint: the rendezvous endpoint's host, empty in a job of one node: then there is no link, and nothing here
            does anything.
        judge: of the run.
        console: of the run.
        look: takes a look at this node's ranks.
    """

    def __init__(
        self, endpoint: str, judge: Judge, console: Console, look: Callable[[WorkerGroup], Case] | None = None
    ) -> None:
        self.end: Verdict | None = None  # for which this node is to end as well, once its ranks fail or wait
        self._lost_at: float | None = None  # where that is a lost node: since when it is told
        self._outlived: frozenset[int] = frozenset()  # nodes that were lost, and whose ranks went on
        self.look = look
        self._group: WorkerGroup | None = None
        self._endpoint = endpoint
        self._judge = judge
        self._console = console
        self._listening: Listening | None = None
        self._link: Link | None = None
        self._inquiry: _Inquiry | None = None
        self._concluded: _Concluded | None = None
        self._numbers = itertools.count(1)
        self._asks = itertools.count(1)
        self._asked: int | None = None  # the suspicion for which this node waits for a verdict over all nodes
        self._judged: Verdict | None = None  # what it is
        self._news = threading.Condition()
        self._told_unlinked = False
        self._wanted: int | None = None  # the look that the hub waits for
        self._said_by = -1  # the node that was the hub when a verdict over all nodes came
        self._own: Verdict | None = None  # what this node has judged as the hub
        self._common: Verdict | None = None  # the latest one over all nodes
        self._met: float = 0.0

    # ------------------------------------------------------------------------------------------ from the run

    def open(self) -> None:
        """Listen for the others, before there is anybody."""
        if not self._endpoint:
            return
        with contained(self._console.degraded, "the nodes of this job are diagnosed separately"):
            self._listening = listen(self._endpoint)
            self._link = Link(self._listening.socket, self._endpoint)
            self._link.start()
            threading.Thread(target=self._serve, name="safelaunch-nodes", daemon=True).start()

    @property
    def address(self) -> Mapping[str, Any] | None:
        """Where this node listens, for the agent to tell the others; None where it does not."""
        if self._listening is None:
            return None
        return {"host": socket.gethostname(), "ip": self._listening.ip, "port": self._listening.port}

    def meet(self, nodes: Any) -> None:
        """The nodes of a new attempt have met, as the agent tells it."""
        if self._link is None:
            return
        found = checked(Nodes, nodes)
        secret = os.environ.get(VARIABLE, "")
        try:
            key = job_key(found.key, secret)
        except SecretError as error:
            self._console.degraded(f"the nodes of this job are diagnosed separately: {VARIABLE}={error}")
            return
        except ValueError:
            self._console.degraded("the nodes of this job are diagnosed separately: their key in the store is none")
            return
        if self._console.loud > 0 and not secret:
            self._console.say(f"the nodes know each other by the rendezvous store alone, without {VARIABLE}")
        self.end, self._lost_at, self._inquiry, self._judged, self._concluded = None, None, None, None, None
        self._outlived = frozenset()
        self._met = time.monotonic()
        self._link.meet(found, key)

    def follow(self, group: WorkerGroup, step: int) -> None:
        """These are this node's ranks, and they have made so many steps."""
        self._group = group
        if self._link is not None:
            self._link.step = step

    def ends(self, waiting: Mapping[int, float], now: float) -> Verdict | None:
        """The verdict for which this node's ranks are to be ended now; None for going on.

        A lost node is one whose supervisor is not heard. Where ranks get on long after that, it was the link alone.

        Args:
            waiting: for how many seconds each rank has made no progress that waits for others.
            now: CLOCK_MONOTONIC.
        """
        end = self.end
        if end is None or not waiting:
            return None
        if self._lost_at is not None and now - min(waiting.values()) > self._lost_at + OUTLIVED_S:
            self._outlived |= set(self._link.peers.lost) if self._link is not None else set()
            self.end = self._lost_at = None
            self._console.degraded("nodes that are not heard any more have ranks that go on: diagnosed separately")
            return None
        return end if max(waiting.values()) > (ENDED_S if self._lost_at is None else STILL_S) else None

    def close(self) -> None:
        """Say goodbye to the others."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def verdict(self, facts: Case) -> Verdict | None:
        """The verdict over all nodes, of which this one's case is a part; None where there are no others, or where they
        do not answer in time. It takes up to `VERDICT_S` seconds, and more in a large job."""
        link = self._link
        if link is None or link.peers.me < 0:
            return None
        if not link.peers.linked:
            with self._news:  # one that has left may have said why
                self._news.wait_for(lambda: self.end is not None, GOODBYE_S if link.peers.gone else 0.0)
            return self.end or self._of_lost(CLOSED_S)
        self._judged, self._asked = None, next(self._asks)
        link.to_hub(Suspect(self._asked, digest(facts, link.peers.offset_s or 0.0)))
        with self._news:
            patience = VERDICT_S + _more_s(link)
            self._news.wait_for(lambda: self._judged is not None or self.end is not None, patience)
        self._asked = None
        self._common = self._judged or self.end or self._of_lost(CLOSED_S)
        return self._common

    def tell_end(self, verdict: Verdict) -> None:
        """This node ends its ranks, for good; the others are to end as well."""
        if self._link is not None and self._link.peers.linked and self.end is None:
            say = self._link.to_all if self._link.peers.is_hub else self._link.to_hub  # before its goodbye
            say(Ends(verdict))

    def as_said_here(self, verdict: Verdict) -> Verdict:
        """The verdict as this node says it: of one over all nodes the hub says all, and the others the headline."""
        link, common = self._link, self.end or self._common
        if link is None or common is None or common.summary != verdict.summary or verdict.kind == "infra":
            return verdict
        hub = link.peers.nodes.get(self._said_by)  # it may have said goodbye meanwhile
        if hub is None or hub.node_rank == link.peers.me or hub.node_rank in link.peers.lost:
            return verdict
        remedy = f"all of it is in the output of {host_name(hub.host)}, and in verdict.json"
        return dataclasses.replace(verdict, because=(), traceback="", remedy=remedy)

    def lost(self) -> Verdict | None:
        """The verdict on nodes that were lost, for an agent that has failed; it waits for that to be known."""
        until = time.monotonic() + LOST_WAIT_S
        while self._link is not None and self._link.peers.me >= 0 and time.monotonic() < until:
            found = self.end or self._of_lost(CLOSED_S)
            if found is not None:
                return found
            time.sleep(0.1)
        return None

    # ------------------------------------------------------------------------------------------- the thread

    def _serve(self) -> None:
        while (link := self._link) is not None:
            with contained(self._console.degraded, "the nodes of this job are diagnosed separately"):
                self._round(link)
                continue
            self.close()

    def _round(self, link: Link) -> None:
        with contextlib.suppress(queue.Empty):
            self._take_in(link, *link.take(POLL_S))
            for _ in range(AT_ONCE):  # what follows asks for all nodes, and so it does not follow each message
                self._take_in(link, *link.take(0.0))
        inquiry = self._inquiry
        if inquiry is not None and self._is_over(link, inquiry):
            self._inquiry = None
            self._conclude(link, inquiry)
        self._follow_losses(link)
        if link.fault is not None:
            fault, link.fault = link.fault, None
            raise fault
        self._tell_unlinked(link)

    def _take_in(self, link: Link, node: int, message: Message) -> None:
        if isinstance(message, (Judged, Ends)) and message.verdict.code not in CATALOGUE:
            return  # of a newer version, or of nobody
        if isinstance(message, Suspect):
            self._asked_by(link, node, message)
        elif isinstance(message, Seen):
            if self._inquiry is not None and self._inquiry.number == message.number:
                self._add(self._inquiry, node, message.case)
        elif isinstance(message, Look):
            if self._asked is None:  # else the hub has this node's case, or is about to
                self._look_for(link, message.number)
        elif isinstance(message, Judged):
            if (link.peers.me, self._asked) in message.asked:
                with self._news:
                    self._judged = self._as_known(link, node, message.verdict)
                    self._news.notify_all()
        elif isinstance(message, Ends) and self.end is None:
            self._set_end(self._as_known(link, node, message.verdict))
            if link.peers.is_hub:
                link.to_all(message)

    def _follow_losses(self, link: Link) -> None:
        lost = set(link.peers.lost) - self._outlived
        if lost and link.peers.settled and self.end is None:
            self._lost_at = time.monotonic()
            self._set_end(self._of_lost(CLOSED_S))
        elif not lost and self._lost_at is not None:
            self.end = self._lost_at = None  # they are back

    def _asked_by(self, link: Link, node: int, message: Suspect) -> None:
        """As the hub: a node asks for a verdict over all."""
        found = self._concluded
        if self._inquiry is None and found is not None and found.holds(node, message.case):
            link.to_node(node, Judged(found.verdict, ((node, message.number),)))
            return
        if self._inquiry is None:
            until = time.monotonic() + ANSWER_S + _more_s(link) / 2
            self._inquiry = _Inquiry(next(self._numbers), until)
            link.to_all(Look(self._inquiry.number))
        self._inquiry.asked.append((node, message.number))
        self._add(self._inquiry, node, message.case)

    def _set_end(self, verdict: Verdict | None) -> None:
        with self._news:
            self.end = self.end or verdict
            self._news.notify_all()

    def _look_for(self, link: Link, number: int) -> None:
        """Take a look at this node's ranks for the hub: beside all else, since it takes a second. Of those who ask
        meanwhile the last one gets the same answer: each look costs the ranks some of their time."""
        with self._news:
            looking, self._wanted = self._wanted is not None, number
        if not looking:
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: Link) -> None:
        group, case = self._group, None
        with contained(self._console.degraded, "the other nodes learn nothing of this node's ranks"):
            if self.look is not None and group is not None and group.workers:
                case = digest(self.look(group), link.peers.offset_s or 0.0)
        with self._news:
            number, self._wanted = self._wanted, None
        if number is not None:
            link.to_hub(Seen(number, case))

    def _as_known(self, link: Link, node: int, verdict: Verdict) -> Verdict:
        """Another node's verdict, with an exit code that ends no job as if it had succeeded, and without its advice:
        who has the link's key may have put any command there. What this node has judged for all it knows itself, and
        what helps against lost nodes follows from their names."""
        own = self._own
        remedy = own.remedy if own is not None and (own.code, own.summary) == (verdict.code, verdict.summary) else ""
        words = set(re.split(r"[^\w.:-]+", verdict.summary))
        nodes = link.peers.nodes
        lost = tuple(
            LostNode(number, 0.0) for number, one in nodes.items() if one.host and host_name(one.host) in words
        )
        if lost and verdict.kind == "infra":
            remedy = infra.node_lost(lost, nodes, link.peers.me).remedy
        self._said_by = link.peers.me if link.peers.is_hub else node
        exit_code = verdict.exit_code if verdict.exit_code in range(1, 256) else 1
        return dataclasses.replace(verdict, exit_code=exit_code, remedy=remedy)

    @staticmethod
    def _add(inquiry: _Inquiry, node: int, case: Case | None) -> None:
        inquiry.answered.add(node)
        if case is not None:
            inquiry.cases[node] = case

    @staticmethod
    def _is_over(link: Link, inquiry: _Inquiry) -> bool:
        wanted = {link.peers.me, *link.peers.linked}
        return wanted <= inquiry.answered or time.monotonic() > inquiry.until

    def _conclude(self, link: Link, inquiry: _Inquiry) -> None:
        cases = [case for _, case in sorted(inquiry.cases.items())]
        if not cases:
            return
        case = one_case(cases)
        verdict = self._judge.verdict(case)
        if not verdict.culprit_ranks:
            verdict = self._of_lost(CLOSED_S) or verdict
        else:
            hosts = {facts.rank: case.host for case in cases for facts in case.ranks}
            verdict = dataclasses.replace(verdict, host=hosts.get(verdict.culprit_ranks[0], verdict.host))
        self._own = verdict
        link.to_all(Judged(verdict, tuple(inquiry.asked)))
        self._concluded = _Concluded(time.monotonic(), verdict, case.incident.kind, frozenset(inquiry.cases))

    def _of_lost(self, for_s: float) -> Verdict | None:
        """The verdict on nodes that are lost, or that have closed their connection without a goodbye."""
        link = self._link
        lost = link.peers.dropped(time.monotonic(), for_s) if link is not None else ()
        lost = tuple(one for one in lost if one.node_rank not in self._outlived)
        return infra.node_lost(lost, link.peers.nodes, link.peers.me) if link is not None and lost else None

    def _tell_unlinked(self, link: Link) -> None:
        """Say, once, that other nodes are not linked to this one."""
        if self._told_unlinked or not self._met or time.monotonic() - self._met < UNLINKED_S:
            return
        self._told_unlinked = True
        peers = link.peers
        missing = set(peers.nodes) - {peers.me, *peers.linked, *peers.gone, *peers.lost}
        if missing and (peers.is_hub or not peers.linked):  # elsewhere the hub knows better
            hosts = [host_name(peers.nodes[node].host) or f"node {node}" for node in sorted(missing)]
            more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
            self._console.degraded(f"no link to {', '.join(hosts[:4])}{more}: each is diagnosed for itself")


def _more_s(link: Link) -> float:
    """Seconds that a verdict may take longer in a job of so many nodes."""
    return min(NODES_S, NODE_S * len(link.peers.nodes))

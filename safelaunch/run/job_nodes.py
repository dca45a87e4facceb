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
import socket
import threading
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

from safelaunch.cluster.link import Link
from safelaunch.cluster.listener import Listening, listen
from safelaunch.cluster.messages import Ends, Interrupted, Judged, Leaves, Look, Message, Seen, Suspect
from safelaunch.cluster.secret import VARIABLE, SecretError, job_key
from safelaunch.codec import checked
from safelaunch.codes import CATALOGUE
from safelaunch.diagnosis import infra
from safelaunch.evidence.offline.nodes import one_case
from safelaunch.model import AgentEnd, Case, Verdict, WorkerGroup
from safelaunch.model.hosts import host_name
from safelaunch.model.nodes import Nodes
from safelaunch.run import nodes_asked
from safelaunch.run.console import Console
from safelaunch.run.digest import digest
from safelaunch.run.inboxes import Inboxes
from safelaunch.run.job_result import Met
from safelaunch.run.judge import Judge
from safelaunch.run.nodes_asked import Concluded, Inquiry
from safelaunch.run.own_faults import contained

ANSWER_S = 2.0  # for the nodes to take a look and answer
VERDICT_S = 2.5  # for the verdict over all nodes; what a failed rank leaves is kept back for 5 s (agent.workers)
GOODBYE_S = 0.3  # between what a node says last and its goodbye there is next to nothing
CLOSED_S = 0.5  # a connection that was closed for so long, while ranks fail, is no accident
LOST_WAIT_S = 4.0  # for a node to be given up, when torch's agent has already failed
ENDED_S = 2.0  # for a rank to wait for others that another node has ended
STILL_S = 5.0  # ... and for those of a node that is lost
OUTLIVED_S = 15.0  # what a rank may still do by itself after a node was lost
POLL_S = 0.1
AT_ONCE = 2048  # messages


class JobNodes:
    """What this node knows of the others.

    Args:
        endpoint: the rendezvous endpoint's host, empty in a job of one node: then there is no link, and nothing here
            does anything.
        judge: of the run.
        console: of the run.
        look: takes a look at this node's ranks, and at their hardware where that is asked for.
    """

    def __init__(
        self, endpoint: str, judge: Judge, console: Console, look: Callable[[WorkerGroup, bool], Case] | None = None
    ) -> None:
        self.end: Verdict | None = None  # for which this node is to end as well, once its ranks fail or wait
        self._lost_at: float | None = None  # where that is a lost node: since when it is told
        self._outlived: frozenset[int] = frozenset()  # nodes that were lost, and whose ranks went on
        self.inboxes = Inboxes()
        self.look, self.met = look, Met()
        self._group: WorkerGroup | None = None
        self._endpoint, self._judge, self._console = endpoint, judge, console
        self._listening: Listening | None = None
        self._link: Link | None = None
        self._inquiry: Inquiry | None = None
        self._concluded: Concluded | None = None  # what the latest inquiry has come to, at the hub
        self._numbers, self._asks = itertools.count(1), itertools.count(1)
        self._asked: int | None = None  # the suspicion for which this node waits for a verdict over all nodes
        self._judged: Verdict | None = None  # what it is
        self._news = threading.Condition()
        self._unlinked = nodes_asked.Unlinked(console.degraded)
        self._heard: Verdict | None = None  # the latest one over all nodes on ranks that failed, whoever has asked
        self._wanted: Look | None = None  # the look that the hub waits for
        self._common: Verdict | None = None  # the latest one over all nodes
        self._failing, self._leaving = False, False  # ranks of this node have failed; it was told to end
        self._failed: Case | None = None  # what came of that
        self._interrupted: Verdict | None = None  # a node was told to end: why ranks of others fail
        self._attempt, self._met = -1, 0.0  # the latest rendezvous

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
        own = self._listening
        return {"host": socket.gethostname(), "ip": own.ip, "port": own.port} if own is not None else None

    @property
    def link(self) -> Link | None:
        """To the others; None in a job of one node."""
        return self._link

    def meet(self, nodes: Any) -> None:
        """The nodes of a new attempt have met, or more of them are known, as the agent tells it."""
        if self._link is None:
            return
        found = checked(Nodes, nodes)
        secret = os.environ.get(VARIABLE, "")
        try:
            key = job_key(found.key, secret)
        except (SecretError, ValueError) as error:
            why = f"{VARIABLE}={error}" if isinstance(error, SecretError) else "their key in the store is none"
            self._console.degraded(f"the nodes of this job are diagnosed separately: {why}")
            return
        if self._console.loud > 0 and not secret:
            self._console.say(f"the nodes know each other by the rendezvous store alone, without {VARIABLE}")
        if found.attempt < self._attempt:
            return
        if found.attempt > self._attempt:  # else more of its nodes are known
            self.end, self._lost_at, self._inquiry, self._judged, self._concluded = None, None, None, None, None
            self._outlived, self._failing, self._failed, self._interrupted = frozenset(), False, None, None
            self._heard = None
            self._attempt, self._met = found.attempt, time.monotonic()
        self.met.add(found)
        self._link.meet(found, key)
        self.inboxes.met(self._link)

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
            if self._link is not None:
                self._outlived |= set(self._link.peers.lost)
                self._console.degraded(nodes_asked.outlived(self._link.peers))
            self.end = self._lost_at = None
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
            return self._alone(link)
        self._judged, self._asked = None, next(self._asks)
        case = digest(facts, link.peers.offset_s or 0.0)
        self._failed = case if self._failing else None
        link.to_hub(Suspect(self._asked, case))
        with self._news:
            patience = VERDICT_S + nodes_asked.more_s(len(link.peers.nodes))
            self._news.wait_for(lambda: self._judged is not None or self.end is not None, patience)
        self._asked = None
        self._common = found = self._over_nodes(self._judged or self.from_elsewhere())
        return found

    def failing(self) -> None:
        """Ranks of this node have failed: their case comes soon, and says more than a look at them."""
        self._failing = True

    def interrupted(self, signum: int) -> None:
        """This node was told to end, by a signal."""
        link, self._leaving = self._link, True
        if link is not None and link.peers.linked:
            self._interrupted = verdict = infra.interrupted(signum, link.peers.nodes[link.peers.me])
            nodes_asked.say(link, Interrupted(verdict))

    def reason(self) -> Verdict | None:
        """Why the ranks of another node have failed, or that it was lost, as far as that is known here."""
        return self._heard or self.from_elsewhere()

    def denied(self, ranks: Set[int]) -> Verdict | None:
        """Why this node has not succeeded although all of its ranks have: others end for one of them."""
        return self.end if self.end is not None and ranks & set(self.end.culprit_ranks) else None

    def tell_end(self, verdict: Verdict) -> None:
        """This node ends its ranks, for good; the others are to end as well."""
        if self._link is not None and self._link.peers.linked and self.end is None:
            nodes_asked.say(self._link, Ends(verdict))

    def as_said_here(self, verdict: Verdict) -> Verdict:
        """The verdict as this node says it: of one over all nodes the first says all, also where it has ended since,
        and the others the headline. What has happened to a node is short: all say it."""
        link, common = self._link, self.end or self._common
        same = common is not None and common.summary == verdict.summary
        return nodes_asked.as_said_here(verdict, link.peers) if link is not None and same else verdict

    def first(self, otherwise: bool) -> bool:
        """Whether this node is the first that lives, or `otherwise` where it has not met the others."""
        peers = self._link.peers if self._link is not None else None
        return nodes_asked.first_living(peers) == peers.me if peers is not None and peers.me >= 0 else otherwise

    def of_agent(self, end: AgentEnd) -> Verdict:
        """The verdict on an agent that has ended by itself: one that has failed may have done so for another node."""
        link = self._link
        if link is None or link.peers.me < 0 or not end.workers_started:
            return infra.judge(end)
        failed = end.type and not end.signal
        found = self._settled(link, LOST_WAIT_S) if failed else None
        if found is not None:
            return found
        host = host_name(link.peers.nodes[link.peers.me].host)
        verdict = dataclasses.replace(infra.judge(end, host), host=host)
        if not failed:
            self.tell_end(verdict)
        return verdict

    def _alone(self, link: Link) -> Verdict | None:
        """As `verdict`, where no other node is linked now: one that has left may have said why, one whose connection
        was closed may come back, and when the hub is silent it takes a moment to see whether all others are."""
        lost = link.peers.dropped(time.monotonic(), 0.0)
        return self._settled(link, VERDICT_S if lost else GOODBYE_S if link.peers.gone else 0.0)

    def _settled(self, link: Link, patience: float) -> Verdict | None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if self.end or self._interrupted or link.peers.given_up or (link.peers.settled and self._of_lost(CLOSED_S)):
                break
            time.sleep(0.05)
        return self._over_nodes(self.from_elsewhere())

    def _over_nodes(self, verdict: Verdict | None) -> Verdict | None:
        return nodes_asked.over_nodes(verdict, self._link.peers) if verdict and self._link else verdict

    def from_elsewhere(self) -> Verdict | None:
        """Why ranks fail here for what has happened to another node, as far as that is known."""
        if self.end is not None or self._link is None:
            return self.end
        peers = self._link.peers
        interrupted = nodes_asked.told_to_end(self._interrupted, peers)
        return interrupted or nodes_asked.given_up(peers) or self._of_lost(CLOSED_S)

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
        self._follow_losses(link)
        if self._inquiry is not None:
            self._conclude(link, self._inquiry)
        if link.fault is not None:
            fault, link.fault = link.fault, None
            raise fault
        self._unlinked.poll(link.peers, self._met)

    def _take_in(self, link: Link, node: int, message: Message) -> None:
        if isinstance(message, (Judged, Ends, Interrupted)):
            if message.verdict.code in CATALOGUE:  # else it is of a newer version, or of nobody
                self._hear(link, node, message)
        elif isinstance(message, Suspect):
            self._ask_all(link, node, message)
        elif isinstance(message, Seen):
            if self._inquiry is not None and self._inquiry.number == message.number:
                self._inquiry.add(node, message.case, looked=True)
        elif isinstance(message, Look):
            self._be_seen(link, message)
        elif isinstance(message, Leaves):
            for line in nodes_asked.of_leaving(link, node, message):
                self._console.aside(line)
        else:
            self.inboxes.put(link, node, message)

    def _hear(self, link: Link, node: int, message: Judged | Ends | Interrupted) -> None:
        """What another node, or this one as the hub, says of why ranks fail or wait."""
        if isinstance(message, Judged):
            if message.verdict.kind != "hang":
                self._heard = self._as_known(link, message.verdict)
            if (link.peers.me, self._asked) in message.asked:
                with self._news:
                    self._judged = self._as_known(link, message.verdict)
                    self._news.notify_all()
        elif isinstance(message, Ends) and self.end is None:
            self._set_end(self._as_known(link, message.verdict))
            nodes_asked.pass_on(link, node, message)
        elif isinstance(message, Interrupted) and self._interrupted is None:
            self._interrupted = self._as_known(link, message.verdict)
            nodes_asked.pass_on(link, node, message)

    def _ask_all(self, link: Link, node: int, message: Suspect) -> None:
        """As the hub: a node asks for a verdict over all."""
        found = self._concluded
        if self._inquiry is None and found is not None and found.holds(node, message.case):
            link.to_node(node, Judged(found.verdict, ((node, message.number),)))
            return
        if self._inquiry is None:
            until = time.monotonic() + ANSWER_S + nodes_asked.more_s(len(link.peers.nodes)) / 2
            self._inquiry = Inquiry(next(self._numbers), until)
            link.to_all(Look(self._inquiry.number, message.case.hardware))
        self._inquiry.asked.append((node, message.number))
        self._inquiry.add(node, message.case, looked=False)

    def _be_seen(self, link: Link, wanted: Look) -> None:
        if self._failed is not None or self._leaving:  # of whoever was told to end nothing follows
            link.to_hub(Seen(wanted.number, self._failed))
        elif self._asked is None and not self._failing:  # else the hub has this node's case, or is about to
            self._look_for(link, wanted)

    def _follow_losses(self, link: Link) -> None:
        lost = set(link.peers.lost) - self._outlived
        if lost and link.peers.settled and self.end is None:
            self._lost_at = time.monotonic()
            self._set_end(nodes_asked.given_up(link.peers) or self._of_lost(CLOSED_S))
        elif not lost and self._lost_at is not None:
            self.end = self._lost_at = None  # they are back

    def _set_end(self, verdict: Verdict | None) -> None:
        with self._news:
            self.end = self.end or self._over_nodes(verdict)
            self._news.notify_all()

    def _look_for(self, link: Link, wanted: Look) -> None:
        """Take a look at this node's ranks for the hub: beside all else, since it takes a second. Of those who ask
        meanwhile the last one gets the same answer: each look costs the ranks some of their time."""
        with self._news:
            looking, self._wanted = self._wanted is not None, wanted
        if not looking:
            threading.Thread(target=self._answer, args=(link, wanted.hardware), daemon=True).start()

    def _answer(self, link: Link, hardware: bool) -> None:
        group, case = self._group, None
        with contained(self._console.degraded, "the other nodes learn nothing of this node's ranks"):
            if self.look is not None and group is not None and group.workers:
                case = digest(self.look(group, hardware), link.peers.offset_s or 0.0)
        with self._news:
            wanted, self._wanted = self._wanted, None
        if wanted is not None and not self._failing:
            link.to_hub(Seen(wanted.number, case))

    def _as_known(self, link: Link, verdict: Verdict) -> Verdict:
        own = self._concluded.verdict if self._concluded is not None else None
        return nodes_asked.as_known(verdict, own, link.peers.nodes, link.peers.me)

    def _conclude(self, link: Link, inquiry: Inquiry) -> None:
        """Tell the verdict, once all have answered. One on failures that names nobody waits for its time: ranks that
        lose a peer may fail before the supervisor of that peer knows of it."""
        late = time.monotonic() > inquiry.until
        if not late and not {link.peers.me, *link.peers.linked} <= inquiry.answered:
            return
        cases = [case for _, case in sorted(inquiry.cases.items())]
        if inquiry.verdict is None:
            inquiry.verdict = nodes_asked.with_host(self._judge.verdict(one_case(cases)), cases)
        verdict = inquiry.verdict
        if not verdict.culprit_ranks:
            known = self.from_elsewhere()
            if known is None and not late and inquiry.of_failures:
                return
            verdict = known or nodes_asked.with_silent(verdict, link.peers, inquiry)
        self._inquiry = None
        self._concluded = inquiry.concluded(verdict)
        link.to_all(Judged(verdict, tuple(inquiry.asked)))

    def _of_lost(self, for_s: float) -> Verdict | None:
        """The verdict on nodes that are lost, or that have closed their connection without a goodbye."""
        link = self._link
        lost = link.peers.dropped(time.monotonic(), for_s) if link is not None else ()
        lost = tuple(one for one in lost if one.node_rank not in self._outlived)
        return infra.node_lost(lost, link.peers.nodes, link.peers.me) if link is not None and lost else None

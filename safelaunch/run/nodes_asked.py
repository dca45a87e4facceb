"""What the nodes of a job are asked, at the hub, what it comes to, and what is taken from others."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import Leaves, Message
from safelaunch.cluster.peers import Peers
from safelaunch.diagnosis import infra
from safelaunch.model import Case, Verdict
from safelaunch.model.hosts import host_name, host_names
from safelaunch.model.nodes import LostNode, Node
from safelaunch.run import blamed_nodes

NODE_S = (
    0.05  # seconds more for a verdict, for each node, and half of that for the looks: the hub reads case after case
)
NODES_S = 12.0  # ... but no more than this: it needs 4 s of a core for 8,192 ranks (benchmarks/scale.py)
UNLINKED_S = 30.0
AGAIN_S = 0.9  # a node's next look, which is to confirm the one before, is later: `CONFIRM_S`, and what a look takes


@dataclass
class Inquiry:
    """One look at all nodes. `until` is CLOCK_MONOTONIC."""

    number: int
    until: float
    cases: dict[int, Case] = field(default_factory=dict)  # by node rank
    answered: set[int] = field(default_factory=set)
    asked: list[tuple[int, int]] = field(default_factory=list)  # `Judged.asked`
    verdict: Verdict | None = None  # of these cases; None where there are others since

    def add(self, node: int, case: Case | None, *, looked: bool) -> None:
        """What a node has told; a look that the hub has asked for is worth less than what the node says by itself."""
        self.answered.add(node)
        if case is not None and not (looked and any(node == asker for asker, _ in self.asked)):
            self.cases[node] = case
            self.verdict = None

    @property
    def of_failures(self) -> bool:
        """Whether ranks have failed, and not only wait."""
        return any(case.incident.kind == "exit" for case in self.cases.values())

    def concluded(self, verdict: Verdict) -> Concluded:
        """It is over, with this verdict."""
        kind = "exit" if self.of_failures else "hang"
        hardware = any(case.hardware for case in self.cases.values())
        return Concluded(time.monotonic(), verdict, kind, frozenset(self.cases), hardware)


@dataclass(frozen=True)
class Concluded:
    """What the latest look at all nodes has come to. It holds for those as well who notice a little later, and whose
    case is in it: another look would take as long, and tell the same. `t` is CLOCK_MONOTONIC."""

    t: float
    verdict: Verdict
    kind: str
    nodes: frozenset[int]
    hardware: bool = False  # whether the case of one of these nodes told of its hardware

    def holds(self, node: int, case: Case) -> bool:
        """Whether it answers a node that asks now."""
        is_fresh = time.monotonic() - self.t < AGAIN_S and (self.hardware or not case.hardware)
        return is_fresh and bool(self.verdict.culprit_ranks) and case.incident.kind == self.kind and node in self.nodes


def as_known(verdict: Verdict, own: Verdict | None, nodes: Mapping[int, Node], me: int) -> Verdict:
    """Another node's verdict, with an exit code that ends no job as if it had succeeded, and without its advice: who
    has the link's key may have put any command there.

    Args:
        verdict: as it came.
        own: what this node has judged itself as the hub, whose advice stays.
        nodes: of the job: what helps against lost ones follows from their names.
        me: this one's node rank.
    """
    remedy = own.remedy if own is not None and (own.code, own.summary) == (verdict.code, verdict.summary) else ""
    words = set(re.split(r"[^\w.:-]+", verdict.summary))
    lost = tuple(LostNode(number, 0.0) for number, one in nodes.items() if one.host and host_name(one.host) in words)
    if lost and verdict.code == "SL604":
        remedy = infra.node_lost(lost, nodes, me).remedy
    exit_code = verdict.exit_code if verdict.exit_code in range(1, 256) else 1
    return dataclasses.replace(verdict, exit_code=exit_code, remedy=remedy)


def with_host(verdict: Verdict, cases: Iterable[Case]) -> Verdict:
    """The verdict on the cases of all nodes, with the host of the rank that it names first."""
    if not verdict.culprit_ranks:
        return verdict
    hosts = {facts.rank: case.host for case in cases for facts in case.ranks}
    return dataclasses.replace(verdict, host=hosts.get(verdict.culprit_ranks[0], verdict.host))


def with_silent(verdict: Verdict, peers: Peers, inquiry: Inquiry) -> Verdict:
    """A verdict on failures that names nobody, with the nodes that are linked and have not answered: they may know
    why."""
    silent = sorted({peers.me, *peers.linked} - inquiry.answered)
    if not silent or not inquiry.of_failures:
        return verdict
    hosts = [host_name(peers.nodes[node].host) or f"node {node}" for node in silent]
    line = f"safelaunch on {host_names(hosts)} has not answered: what happened to its ranks is not known here"
    remedy = f"look at {host_names(hosts)}: its ranks may have failed first"
    return dataclasses.replace(verdict, because=(line, *verdict.because), remedy=remedy)


def over_nodes(verdict: Verdict, peers: Peers) -> Verdict:
    """The verdict with how many nodes it is about: those that have a supervisor of ours, lost ones among them."""
    return dataclasses.replace(verdict, nodes=sum(node.port > 0 for node in peers.nodes.values()))


def first_living(peers: Peers) -> int:
    """The node rank of the first node that lives: it speaks for the job."""
    known = [n for n, node in peers.nodes.items() if node.port and n not in peers.lost and n not in peers.mute]
    return min(known, default=peers.me)


def as_said_here(verdict: Verdict, peers: Peers) -> Verdict:
    """A verdict over all nodes as this one says it: the first that lives says all, the others the headline. What has
    happened to a node is short: all say it."""
    first = first_living(peers)
    if first == peers.me or verdict.kind == "infra":
        return verdict
    remedy = f"all of it is in the output of {host_name(peers.nodes[first].host)}, and in verdict.json"
    return dataclasses.replace(verdict, because=(), traceback="", remedy=remedy)


def told_to_end(verdict: Verdict | None, peers: Peers) -> Verdict | None:
    """The verdict on a node that was told to end; None where none was. Once it has gone its ranks have ended, and
    nothing can end the wait of others for them: gloo tells these, and NCCL does not."""
    gone = {host_name(peers.nodes[node].host) for node in peers.gone if node in peers.nodes}
    return dataclasses.replace(verdict, conclusive=verdict.host in gone) if verdict is not None else None


def given_up(peers: Peers) -> Verdict | None:
    """That the other nodes have given this one up; None where they have not."""
    return infra.given_up(peers.given_up, peers.nodes[peers.me]) if peers.given_up else None


def unlinked(peers: Peers) -> str:
    """The hosts of nodes that are not linked to this one, where nobody else knows better; empty for none."""
    missing = set(peers.nodes) - {peers.me, *peers.linked, *peers.gone, *peers.lost}
    ended = peers.gone or peers.given_up  # the others have met, and this node has slept through it
    if ended or not (peers.is_hub or not peers.linked):
        return ""
    hosts = [host_name(peers.nodes[node].host) or f"node {node}" for node in sorted(missing)]
    return host_names(hosts)


def outlived(peers: Peers) -> str:
    """That nodes are lost, and their ranks go on."""
    hosts = [host_name(peers.nodes[node].host) or f"node {node}" for node in sorted(peers.lost)]
    is_not, its = ("is not", "its") if len(hosts) == 1 else ("are not", "their")
    return f"{host_names(hosts)} {is_not} heard any more, and {its} ranks go on: what happens there is not seen here"


class Unlinked:
    """Says, once, that other nodes are not linked to this one.

    Args:
        say: takes what is missing.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told = False

    def poll(self, peers: Peers, met: float) -> None:
        """One round; the nodes have met at this CLOCK_MONOTONIC, 0 for not yet."""
        if self._told or not met or time.monotonic() - met < UNLINKED_S:
            return
        self._told = True
        if hosts := unlinked(peers):
            self._say(f"no link to {hosts}: each is diagnosed for itself")


def more_s(nodes: int) -> float:
    """Seconds that a verdict may take longer in a job of so many nodes."""
    return min(NODES_S, NODE_S * nodes)


def say(link: Link, message: Message) -> None:
    """Tell the other nodes, before this one's goodbye."""
    (link.to_all if link.peers.is_hub else link.to_hub)(message)


def tell_leaving(link: Link | None, codes: tuple[str, ...], *, stays: bool) -> None:
    """Tell the other nodes, where there are any, that this one leaves the job, or that it stays: see `Leaves`."""
    if link is not None and link.peers.me >= 0:
        say(link, Leaves(link.peers.me, codes, stays))


def of_leaving(link: Link, node: int, message: Leaves) -> tuple[str, ...]:
    """What is said of another node that leaves the job, or cannot; the hub passes it on to all first, itself among
    them."""
    if link.peers.is_hub and node != link.peers.me:
        link.to_all(message)
        return ()
    one = link.peers.nodes.get(message.node_rank)
    if one is None or message.node_rank == link.peers.me:
        return ()
    stays = blamed_nodes.ASK_THERE if message.stays else ""
    return (blamed_nodes.leaving(host_name(one.host), message.codes, stays),)


def pass_on(link: Link, node: int, message: Message) -> None:
    """As the hub, tell the others what a node has said."""
    if link.peers.is_hub and node != link.peers.me:
        link.to_all(message)

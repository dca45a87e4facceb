"""Who of a job's nodes lives, as far as this node knows: arithmetic on times that are handed in."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.cluster.messages import Hello
from safelaunch.model.nodes import LostNode, Node, Nodes

# A node that has said nothing for so long is lost: four beats, of which a network that loses 5 % of its packets, and
# repeats them after 0.2 to 0.8 s, takes none away.
LOST_S = 9.0
DOUBT_S = 3.0  # a beat and a half: one that has said nothing for so long may be about to be lost
CLOSED_S = 3.0  # ... or that has closed its connection and does not come back
COME_S = 30.0  # for the first hub to answer; one that does not is blocked, or no node of ours
TAKEOVER_S = 5.0  # for the others to come to the next one: they lose a silent hub within a beat of each other
STOPPED_S = 3.0  # our own process did not run for so long: that time counts for nobody
ROUNDS = 30  # of which the quickest tells the offset of the hub's clock


@dataclass
class _Known:
    """What is known of one node: None for what has not been."""

    heard: float
    closed: float | None = None
    step: int = 0
    expected: bool = False  # by a new hub, to which it has yet to come


class Peers:
    """The nodes of one attempt, with this one's place among them.

    Read from any thread: each value is replaced and never changed.
    """

    def __init__(self) -> None:
        self.me = -1
        self.nodes: dict[int, Node] = {}
        self.lost: dict[int, LostNode] = {}
        self.gone: frozenset[int] = frozenset()  # left with a goodbye
        self.mute: frozenset[int] = frozenset()  # never answered as the hub: blocked, or no node of ours
        self.members: tuple[int, ...] = ()  # the nodes that are linked, as the hub says
        self.given_up: LostNode | None = None  # this node, by the hub, which has not answered since
        self.offset_s: float | None = None  # the hub's clock less this one's
        self._in_order: tuple[int, ...] = ()  # those that have a supervisor
        self._known: dict[int, _Known] = {}
        self._rounds: list[tuple[float, float]] = []  # time of a round trip, offset
        self._looked: float | None = None
        self._since = 0.0
        self._heard = 0.0  # when anybody was last heard

    def meet(self, nodes: Nodes, now: float) -> None:
        """The nodes of a new attempt."""
        self.me = nodes.me
        self.lost, self.gone, self.mute, self.members = {}, frozenset(), frozenset(), ()
        self._known, self._since, self.given_up = {}, now, None
        self._forget_clock()
        self.nodes = {node.node_rank: node for node in nodes.nodes}
        self._in_order = tuple(sorted(n for n, node in self.nodes.items() if node.port))

    def join(self, nodes: Nodes) -> bool:
        """More nodes of the same attempt have a supervisor than was known. Returns whether all else stays as it is: not
        so where one of them is to be the hub."""
        in_order = tuple(sorted(node.node_rank for node in nodes.nodes if node.port))
        if nodes.me != self.me or not set(self._in_order) <= set(in_order) or in_order[:1] != self._in_order[:1]:
            return False
        self.nodes, self._in_order = {node.node_rank: node for node in nodes.nodes}, in_order
        return True

    @property
    def hub(self) -> int | None:
        """The node rank of the hub: the lowest that lives; None before the nodes have met."""
        for node in self._in_order:  # asked for each message: the first one it is, as a rule
            if node not in self.lost and node not in self.gone and node not in self.mute:
                return node
        return None

    @property
    def is_hub(self) -> bool:
        return self.me >= 0 and self.hub == self.me

    @property
    def settled(self) -> bool:
        """Whether it is known who lives: the hub has answered, or this node is it and all others are heard or lost.
        Nodes that a cut cable takes away are not lost in the same moment."""
        known, now = dict(self._known), self._looked or 0.0
        if not self.is_hub:
            return self.hub in known
        return not any(one.expected or (one.closed is None and now - one.heard > DOUBT_S) for one in known.values())

    @property
    def linked(self) -> tuple[int, ...]:
        """The other nodes that are connected to this one now: all of them at the hub, the hub alone elsewhere."""
        known = dict(self._known)
        return tuple(sorted(n for n, one in known.items() if one.closed is None and n not in self.lost))

    def dropped(self, now: float, for_s: float) -> tuple[LostNode, ...]:
        """Nodes that have been lost, and those whose connection was closed without a goodbye `for_s` seconds ago.

        Where the hub is silent, so are all others, until the next hub answers: it may be this node that is cut off.
        """
        known = dict(self._known)
        gone = {n: one.closed for n, one in known.items() if one.closed is not None and not one.expected}
        closed = (node for node, since in gone.items() if now - since >= for_s)
        more = {n: self._loss(n, now) for n in closed if n not in self.gone}
        found = {**more, **self.lost}
        if not self.is_hub and self.hub not in known and any(not loss.closed for loss in found.values()):
            unheard = {n for n, node in self.nodes.items() if node.port} - {self.me, *self.gone, *self.mute}
            found = {**{n: LostNode(n, round(now - self._heard, 1)) for n in unheard}, **found}
        return tuple(loss for _, loss in sorted(found.items()))

    @property
    def clock_error_s(self) -> float | None:
        """By how much `offset_s` may be wrong: the answer came at any time within the quickest round trip. None where
        the hub's clock is not known."""
        return 0.0 if self.is_hub else min(self._rounds)[0] / 2 if self._rounds else None

    def admits(self, hello: Hello) -> bool:
        """Whether this may be a node of the attempt."""
        return hello.node_rank in self.nodes and hello.node_rank != self.me

    def heard(self, node: int, now: float, step: int) -> None:
        """A node has said something; one that was given up is back."""
        self._heard = now
        known = self._known.setdefault(node, _Known(now))
        known.heard, known.closed, known.expected = now, None, False
        known.step = max(step, known.step)
        if node in self.lost:
            self.lost = {other: loss for other, loss in self.lost.items() if other != node}

    def left(self, node: int, now: float) -> None:
        """A node has said goodbye."""
        before = self.hub
        self.gone |= {node}
        self._known.pop(node, None)
        if self.hub != before:
            self._take_over(now)

    def closed(self, node: int, now: float) -> None:
        """The connection to a node has ended, or did not come about."""
        known = self._known.get(node)
        if known is not None and known.closed is None:
            known.closed = now

    def told(self, lost: tuple[LostNode, ...]) -> None:
        """The hub has lost nodes."""
        others = {one.node_rank: one for one in lost if one.node_rank in self.nodes and one.node_rank != self.me}
        self.lost = {**self.lost, **others}
        self.given_up = next((one for one in lost if one.node_rank == self.me), self.given_up)

    def look(self, now: float) -> tuple[LostNode, ...]:
        """One round: the nodes that are lost since the last one."""
        if self._looked is not None and now - self._looked > STOPPED_S:
            for known in self._known.values():
                known.heard += now - self._looked
                known.closed = None if known.closed is None else known.closed + now - self._looked
            self._since += now - self._looked
        self._looked = now
        lost = tuple(self._loss(node, now) for node in sorted(self._known) if self._is_lost(node, now))
        before = self.hub
        self.told(lost)
        for one in lost:
            self._known.pop(one.node_rank, None)
        if before is not None and before == self.hub and before not in {*self._known, self.me}:
            patience = TAKEOVER_S if before in self.members else COME_S
            if now - self._since > patience and before in self.members:
                self.told((LostNode(before, round(now - self._heard, 1)),))
            elif now - self._since > patience:
                self.mute |= {before}
        if self.hub != before:
            self._take_over(now)
        return lost

    def _take_over(self, now: float) -> None:
        """There is another hub; where it is this node, the others have to come to it."""
        self._since = now
        self._forget_clock()
        if self.is_hub:
            for node in self.members:
                if node != self.me and node not in self.lost and node not in self.gone:
                    self._known.setdefault(node, _Known(self._heard, now, expected=True))

    def clock(self, asked: float, theirs: float, now: float) -> None:
        """The hub has answered: `theirs` is its clock, between `asked` and `now` of this one's."""
        self.given_up = None  # it hears this node
        self._rounds = [*self._rounds[-ROUNDS:], (now - asked, theirs - (asked + now) / 2)]
        self.offset_s = min(self._rounds)[1]

    def _is_lost(self, node: int, now: float) -> bool:
        known = self._known[node]
        if known.closed is not None:
            return now - known.closed > (TAKEOVER_S if known.expected else CLOSED_S)
        return now - known.heard > LOST_S

    def _loss(self, node: int, now: float) -> LostNode:
        known = self._known[node]
        return LostNode(node, round(now - known.heard, 1), known.closed is not None and not known.expected, known.step)

    def _forget_clock(self) -> None:
        self._rounds, self.offset_s = [], None

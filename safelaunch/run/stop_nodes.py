"""At which call the ranks of all nodes stop: what the hub asks, and what a node answers. See `stop_words`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import AskStop, Held, Hold, Message, StopAt
from safelaunch.run.nodes_asked import unlinked

ANSWER_S = 1.0  # for the nodes to hold their ranks and to say how far they are
HOLD_S = 2.5  # for the hub to say where they stop; its own second, and twice the link's delay. Below `PATIENCE_S`
AGAIN_S = 0.5  # a hub that has not answered may have been lost, and another one asked
LINK_S = 4.0  # for nodes that have met a moment ago to be linked
MARGIN = 2  # calls that ranks of a node which did not answer may be ahead of all others


@dataclass
class _Round:
    """One question to all nodes. `until` is CLOCK_MONOTONIC."""

    number: int
    until: float
    by: str
    calls: dict[int, int] = field(default_factory=dict)  # by node rank


class StopNodes:
    """One node's part in the agreement, as the hub or as another. Used by the thread of `Stops` alone.

    Args:
        hold: holds this node's ranks back, and gives how many calls they have made at most.
        let_go: lets them go on.
        agreed: takes the call at which they stop, why, and who did not answer; 0 where it cannot be agreed.
    """

    def __init__(self, hold: Callable[[], int], let_go: Callable[[], None], agreed: Callable[[int, str], None]) -> None:
        self._hold, self._let_go, self._agreed = hold, let_go, agreed
        self._numbers = itertools.count(1)
        self.restart()

    def restart(self) -> None:
        """Of another attempt nothing counts."""
        self._round: _Round | None = None
        self._told: StopAt | None = None  # by this node as the hub
        self._held_until = self._next = self._first = 0.0

    @property
    def busy(self) -> bool:
        """Whether something is to be done soon."""
        return self._round is not None or self._held_until > 0

    def ask(self, link: Link, by: str, now: float) -> None:
        """Ask the hub, unless it has been asked a moment ago.

        Args:
            link: to it.
            by: why, in words.
            now: CLOCK_MONOTONIC.
        """
        if now >= self._next:
            self._next = now + AGAIN_S
            link.to_hub(AskStop(by))

    def waited(self, now: float) -> bool:
        """Whether nodes that are not linked have had their time for it since this was first asked."""
        self._first = self._first or now
        return now - self._first >= LINK_S

    def take_in(self, link: Link, node: int, message: Message) -> None:
        """What the hub or another node has said."""
        if isinstance(message, AskStop):
            self._begin(link, node, message)
        elif isinstance(message, Hold):
            calls = self._hold()
            self._held_until = time.monotonic() + HOLD_S
            link.to_hub(Held(message.number, calls))
        elif isinstance(message, Held):
            if self._round is not None and self._round.number == message.number:
                self._round.calls[node] = message.calls
        elif isinstance(message, StopAt):
            self._held_until = 0.0
            self._agreed(message.call, message.by)

    def _begin(self, link: Link, node: int, asked: AskStop) -> None:
        if self._told is not None:
            link.to_node(node, self._told)
        elif missing := unlinked(link.peers):
            if self.waited(time.monotonic()):
                link.to_all(StopAt(0, f"no link to {missing}"))
        elif self._round is None:
            self._round = _Round(next(self._numbers), time.monotonic() + ANSWER_S, asked.by)
            link.to_all(Hold(self._round.number))

    def poll(self, link: Link, now: float) -> None:
        """Tell the call once all have answered, or the time for it is over."""
        asked = self._round
        if asked is not None:
            missing = {link.peers.me, *link.peers.linked} - asked.calls.keys()
            if not missing or (now > asked.until and asked.calls):
                self._round = None
                call = max(asked.calls.values()) + 1 + (MARGIN if missing else 0)
                self._told = StopAt(call, asked.by)
                link.to_all(self._told)
        if 0 < self._held_until < now:
            self._held_until = 0.0
            self._let_go()

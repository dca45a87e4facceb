"""Where the parts of a run find what other nodes tell them over the link."""

from __future__ import annotations

import queue

from safelaunch.cluster.link import Link
from safelaunch.cluster.messages import Message, OfStop, TellValues

Inbox = queue.SimpleQueue[tuple[Link, int, Message | None]]  # None: nodes have met


class Inboxes:
    """One for each part that talks with its like on other nodes."""

    def __init__(self) -> None:
        self.pace, self.stop, self.values = Inbox(), Inbox(), Inbox()

    def met(self, link: Link) -> None:
        """The nodes of an attempt have met: all are told of the link."""
        for inbox in (self.pace, self.stop, self.values):
            inbox.put((link, -1, None))

    def put(self, link: Link, node: int, message: Message) -> None:
        """A node has said something to one of them."""
        if isinstance(message, TellValues):
            self.values.put((link, node, message))
        else:
            (self.stop if isinstance(message, OfStop) else self.pace).put((link, node, message))

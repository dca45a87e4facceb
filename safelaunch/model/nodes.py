"""The nodes of a job, as the rendezvous has numbered them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """One node: where its supervisor listens, and which ranks it has.

    `ip` is empty for the node that the endpoint's name leads to: the others have found it by that name. `port` is 0
    where there is no supervisor of ours (torchrun).
    """

    node_rank: int
    host: str = ""
    ip: str = ""
    port: int = 0
    first_rank: int = 0
    ranks: int = 0


@dataclass(frozen=True)
class Nodes:
    """The nodes of one attempt. `me` is this one's node rank; `key` authenticates what they say to each other (hex)."""

    attempt: int
    me: int
    nodes: tuple[Node, ...]
    key: str

    @property
    def round(self) -> str:
        """By which what the nodes of this attempt leave behind is known to belong together."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class LostNode:
    """A node that the others do not hear any more.

    `silent_s` counts from its last word. `closed` says that its supervisor's connection was closed without a goodbye,
    and that nobody listens there: its process has ended, which a machine that is gone cannot tell. `step` is the latest
    optimizer step that it told of, 0 for none.
    """

    node_rank: int
    silent_s: float
    closed: bool = False
    step: int = 0

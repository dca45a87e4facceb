"""Runs in: agent. The nodes of a round in the scheduler's order, where torch's dynamic rendezvous sorts them by name.

By name `gpu10` comes before `gpu9`, and node 0 of a job may not be the one that the scheduler calls its first.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any

from torch.distributed.elastic.rendezvous import dynamic_rendezvous


def rank_by(hosts: Sequence[str]) -> None:
    """Rank the nodes of each round by their places among `hosts`; nodes that are none of them come after, by name.

    Torch's `_RendezvousState` has no order of its own: whoever completes a round enumerates `sorted(participants)`
    (`_DistributedRendezvousOpExecutor._mark_rendezvous_complete`, 2.8 to 2.15). All nodes of a job have the same hosts,
    so it does not matter which of them completes it.
    """
    if not hosts:
        return
    places = {short(host): place for place, host in enumerate(hosts)}

    def in_order(items: Iterable[Any], **options: Any) -> list[Any]:
        found = builtins.sorted(items, **options)
        if options or not all(isinstance(item, dynamic_rendezvous._NodeDesc) for item in found):
            return found
        return builtins.sorted(found, key=lambda node: places.get(short(node.addr), len(places)))

    vars(dynamic_rendezvous)["sorted"] = in_order


def short(host: str) -> str:
    """A name without its domain; an address as it is."""
    return host if host.replace(".", "").isdigit() or ":" in host else host.partition(".")[0].lower()

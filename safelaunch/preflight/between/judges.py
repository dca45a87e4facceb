"""The registry of what is judged between nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from safelaunch.model import Finding
from safelaunch.preflight.between.agreement import environment, hardware, master_address, rendezvous_id, versions
from safelaunch.preflight.between.facts import Picture
from safelaunch.preflight.between.pairs import bad_link, bad_node
from safelaunch.preflight.between.reach import clocks, dial_back, missing, refused


@dataclass(frozen=True)
class Judge:
    """One check between nodes. Like a check of one node, it yields one `ok` or what is wrong. What `compares` needs
    two nodes that answered; `dials` and `pairs` need some that were tried."""

    code: str
    name: str
    function: Callable[[Picture], Iterator[Finding]]
    group: str = "nodes"
    full_only: bool = False
    compares: bool = True
    dials: bool = False
    pairs: bool = False


JUDGES: tuple[Judge, ...] = (
    Judge("SL160", "node-missing", missing, compares=False),
    Judge("SL169", "node-refused", refused, compares=False),
    Judge("SL161", "versions-differ", versions),
    Judge("SL170", "rendezvous-id-differs", rendezvous_id),
    Judge("SL162", "env-differs", environment),
    Judge("SL163", "master-address-differs", master_address),
    Judge("SL164", "hardware-differs", hardware),
    Judge("SL165", "clock-skew", clocks, dials=True),
    Judge("SL166", "dial-back", dial_back, dials=True),
    Judge("SL167", "bad-node", bad_node, full_only=True, pairs=True),
    Judge("SL168", "bad-link", bad_link, full_only=True, pairs=True),
)
CODES: tuple[str, ...] = tuple(judge.code for judge in JUDGES)


def conclude(picture: Picture, judges: Iterable[Judge] = JUDGES) -> tuple[Finding, ...]:
    """All findings of a picture, in the order of the judges."""
    return tuple(
        dataclasses.replace(finding, check=judge.name)
        for judge in judges
        if not judge.compares or len(picture.nodes) > 1
        if not judge.dials or picture.dials
        if not judge.pairs or picture.tried_pairs
        for finding in judge.function(picture)
    )

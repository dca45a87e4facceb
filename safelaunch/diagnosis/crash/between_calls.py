"""Ranks that gloo aborted: in which call that was, by what all ranks had finished before. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from safelaunch.diagnosis import pasted
from safelaunch.diagnosis.waitgraph.record import current_calls
from safelaunch.diagnosis.wording import at, call_at, names
from safelaunch.model import Case, Collective, RankFacts

# gloo/transport/tcp/pair.cc: what came, and what had room.
SIZES = re.compile(r"\b(\d{1,18}) vs (\d{1,18})\. Received data size doesn't match expected size")
FUNCTIONAL = re.compile(r"/torch/distributed/_functional_collectives\.py$")


@dataclass(frozen=True)
class Between:
    """A rank was aborted behind a call that all had finished, ahead of the one in which its peers already were.

    Args:
        before: the last call that the rank had finished.
        peers: those that were further.
        theirs: the call that the first of them was in.
    """

    before: Collective
    peers: tuple[int, ...]
    theirs: Collective

    @property
    def told(self) -> str:
        """`behind all_gather #76 (train.py:35)`."""
        return f"behind {call_at(self.before)}"

    @property
    def because(self) -> tuple[str, ...]:
        """How many calls that may be, and where its peers were."""
        first, last = self.before.seq + 1, self.theirs.seq - 1
        more = f" or #{last}" if last == first + 1 else f" or a later call before #{last + 1}" if last > first else ""
        were = f"{names(self.peers)} {'was' if len(self.peers) == 1 else 'were'}"
        return (
            f"it was in #{first}{more}: the record has no functional collectives, and none of DDP",
            f"{were} past that, in {self.theirs.op} #{self.theirs.seq}{at(self.theirs.location)}",
        )

    @property
    def remedy(self) -> str:
        """What is to be compared."""
        before = replace(
            self.before, op=pasted.name(self.before.op, "call"), location=pasted.place(self.before.location)
        )
        told = f"behind {call_at(before)}"
        return f"compare, on all ranks, the tensors and the split sizes of the calls {told}"


def between(case: Case, rank: int) -> Between | None:
    """Where an aborted rank was, by its record and that of its peers; None where they were in one call, or its record
    names the call."""
    ranks = {facts.rank: facts for facts in case.ranks}
    own = _latest(ranks[rank])
    if own is None or not own.done or own.issued:
        return None
    further = {
        other: call
        for other, facts in ranks.items()
        if other != rank and (call := _latest(facts)) is not None and call.group == own.group
        if not call.done and call.seq > own.seq + 1
    }
    if not further:
        return None
    first = min(further.values(), key=lambda call: call.seq)
    return Between(own, tuple(further), first)


def sizes(ranks: Iterable[RankFacts]) -> tuple[str, ...]:
    """What gloo wrote of the sizes, where the output of a rank is kept; a line at most."""
    for facts in ranks:
        for line in reversed(facts.last_lines):
            found = SIZES.search(line)
            if found:
                return (f"rank {facts.rank} received {found[1]} bytes where it had room for {found[2]}",)
    return ()


def waits_for_functional(facts: RankFacts) -> bool:
    """Whether a rank was aborted while it waited for the result of a functional collective."""
    return facts.fault is not None and any(FUNCTIONAL.search(frame.file) for frame in facts.fault.frames[:4])


def _latest(facts: RankFacts) -> Collective | None:
    """Its latest collective; messages have numbers of their own."""
    return next((call for call in reversed(current_calls(facts)) if not call.is_message), None)

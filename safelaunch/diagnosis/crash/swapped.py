"""Two threads of a rank made their calls in one group in another order than those of another rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from safelaunch.diagnosis.hang.two_threads import OWN_GROUP
from safelaunch.diagnosis.wording import call_at, names, short
from safelaunch.model import Collective, Location, RankFacts


@dataclasses.dataclass(frozen=True)
class Swapped:
    """Calls that follow each other, of two threads, the second of which another rank has made first.

    Args:
        here: by rank, where both are known.
        alone: the call of the meeting of all others.
    """

    here: dict[int, tuple[Collective, Collective]]
    alone: dict[int, Collective]

    @property
    def summary(self) -> str:
        one = next(iter(self.here.values()))
        places = " and ".join(dict.fromkeys(short(call.location) for call in one if call.location is not None))
        return (
            f"two threads of {names(self.here)} use one process group at once{f' ({places})' if places else ''}: "
            "the order of their calls differs from rank to rank"
        )

    @property
    def because(self) -> tuple[str, ...]:
        alike: dict[str, list[int]] = {}
        for rank, (one, two) in self.here.items():
            said = f"{_brings(one)} in one thread, and then {_brings(two)} in another"
            alike.setdefault(said, []).append(rank)
        for rank, call in self.alone.items():
            alike.setdefault(_brings(call), []).append(rank)
        return tuple(f"{names(ranks)} made {said}" for said, ranks in alike.items())

    @property
    def ranks(self) -> list[int]:
        """All whose calls `because` has."""
        return [*self.here, *self.alone]

    @property
    def place(self) -> Location | None:
        """Where the thread that came second on the first of these ranks makes its call."""
        return next(iter(self.here.values()))[-1].location

    remedy = OWN_GROUP


def swapped(meeting: Iterable[tuple[RankFacts, Collective]]) -> Swapped | None:
    """Whether a rank of a meeting brings to the next number, from another of its threads, what another rank has brought
    to this one."""
    came = [*meeting]
    brought = {facts.rank: call for facts, call in came}
    pairs: dict[int, tuple[Collective, Collective]] = {}
    for facts, call in came:
        others = {_kind(other) for rank, other in brought.items() if rank != facts.rank}
        behind = (own for own in facts.collectives if own.group == call.group and own.seq == call.seq + 1)
        for next_one in behind:
            if next_one.thread and call.thread and next_one.thread != call.thread and _kind(next_one) in others:
                pairs[facts.rank] = call, next_one
    return Swapped(pairs, {rank: call for rank, call in brought.items() if rank not in pairs}) if pairs else None


def _kind(call: Collective) -> object:
    return call.op, call.numel, call.dtype, call.location


def _brings(call: Collective) -> str:
    return f"{call_at(call)} of {call.numel} x {call.dtype}"

"""Two threads of a rank made their calls in one group in another order than those of another rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from safelaunch.diagnosis.hang.two_threads import OWN_GROUP
from safelaunch.diagnosis.wording import call_at, names, short
from safelaunch.model import Collective, Location, RankFacts


@dataclasses.dataclass(frozen=True)
class Swapped:
    """Two numbers at which ranks have the same two calls, of two threads each, the other way round."""

    here: dict[int, tuple[Collective, Collective]]  # by rank, in the order of their numbers

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
        return tuple(f"{names(ranks)} made {said}" for said, ranks in alike.items())

    @property
    def place(self) -> Location | None:
        """Where the thread that is not the main one makes its call; the main thread's id is its process's."""
        return next(iter(self.here.values()))[-1].location

    remedy = OWN_GROUP


def swapped(meeting: Iterable[tuple[RankFacts, Collective]]) -> Swapped | None:
    """Whether two ranks of a meeting have brought to it what the other one brings to the number beside it, from another
    of its threads."""
    pairs: dict[int, tuple[Collective, Collective]] = {}
    for facts, call in meeting:
        for beside in (own for own in facts.collectives if own.group == call.group and abs(own.seq - call.seq) == 1):
            if beside.thread and call.thread and beside.thread != call.thread and _kind(beside) != _kind(call):
                one, two = sorted((call, beside), key=lambda own: own.seq)
                pairs.setdefault(facts.rank, (one, two))
    orders = {(_kind(one), _kind(two)) for one, two in pairs.values()}
    return Swapped(pairs) if any((two, one) in orders for one, two in orders) else None


def _kind(call: Collective) -> object:
    return call.op, call.numel, call.dtype, call.location


def _brings(call: Collective) -> str:
    return f"{call_at(call)} of {call.numel} x {call.dtype}"

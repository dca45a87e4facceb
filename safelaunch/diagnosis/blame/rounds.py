"""The calls that a rank makes in turn, and the first one that came out of its turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.blame.deviation import OFTEN
from safelaunch.diagnosis.waitgraph.calls import RING, canonical
from safelaunch.diagnosis.wording import label, of_group, short
from safelaunch.model import Collective, RankFacts


@dataclass(frozen=True)
class Rounds:
    """The calls that a rank makes in turn.

    Args:
        calls: all of them, up to the one that it waits in.
        sites: by what one of them is the same as another.
        length: how many there are in a round.
        place: of the first one, in the last round, whose turn it was not.
    """

    calls: Sequence[Collective]
    sites: Sequence[object]
    length: int
    place: int

    @property
    def are_kept(self) -> bool:
        """Whether each call came in its turn."""
        return self.place == len(self.sites)

    @property
    def due(self) -> Collective:
        """A call like the one whose turn it was."""
        return self.calls[self.place - self.length]

    @property
    def made(self) -> Collective:
        """What was called instead."""
        return self.calls[self.place]

    @property
    def _turns(self) -> Sequence[object]:
        return self.sites[self.place - self.length : self.place]

    @property
    def hold_all(self) -> bool:
        """Whether the calls out of turn are of the rounds: others may belong to another part of the program, which
        repeats as well."""
        return self.sites[self.place] in self._turns and self.sites[-1] in self._turns

    @property
    def out_of_turn(self) -> str:
        """What the rank has done, in words."""
        due, made = _without_number(self.due), _without_number(self.made)
        always = f"of the {self.length} calls that it has always made in turn"
        later = self._turns.index(self.sites[self.place])  # by so many calls what it has made would have had its turn
        if later == 1 and self.length > 2:
            return f"skipped {due}, {always}, and went on to {made}"
        if later == self.length - 1 and self.length > 2:
            return f"made {made} once more, {always}, where {due} was next"
        return f"went on to {made} where {due} was next, {always}"


def rounds_of(facts: RankFacts, last: Collective) -> Rounds | None:
    """The rounds of a rank's thread up to a call; None where it has none, or they are no whole steps."""
    calls = [call for call in facts.calls if call.thread == last.thread and call.t <= last.t]
    sites = [(call.group, canonical(call.op), call.is_message and call.peer, call.location) for call in calls]
    found = _rounds(sites) if _holds_step(facts, calls) else None
    return Rounds(calls, sites, *found) if found is not None and calls[-1] == last else None


def _holds_step(facts: RankFacts, calls: Sequence[Collective]) -> bool:
    """Whether these calls are whole steps: an optimizer has made a step between them, and many of them lie before it.

    They are as well where they are all that the rank has made: what comes in another part of a step would be among
    them.
    """
    if facts.watched and len(facts.calls) < RING:
        return True
    before = [call for call in calls if facts.stepped is not None and call.t < facts.stepped]
    return len(calls) - len(before) < len(before)


def _rounds(sites: Sequence[object]) -> tuple[int, int] | None:
    """After how many calls a rank has always come round to the same one, and the place of the first call for which that
    is not so.

    That is in the last round; it is the length of all where there is none.
    """
    for end in range(len(sites), len(sites) // 2, -1):
        length = round_of(sites[:end])
        if length is not None:
            return (length, end) if len(sites) - end < length else None
    return None


def round_of(sites: Sequence[object]) -> int | None:
    """After how many calls a rank has always come round to the same one; None where it has not, or not often. What it
    did at its beginning alone does not count."""
    still = {*sites[len(sites) // 2 :]}
    turns = [*itertools.dropwhile(lambda site: site not in still, sites)]
    for length in range(1, len(turns) // OFTEN + 1):
        if all(one == other for one, other in zip(turns, turns[length:], strict=False)):
            return length
    return None


def _without_number(call: Collective) -> str:
    """`all_reduce of group 3 (train.py:61)`, `send to rank 2 (train.py:34)`."""
    name = label(call) if call.is_message else f"{call.op}{of_group(call)}"
    return f"{name} ({short(call.location)})" if call.location is not None else name

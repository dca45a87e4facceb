"""Whether ranks use groups of the same members, each for what another rank uses another of them for."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.diagnosis.waitgraph.record import current_calls
from safelaunch.diagnosis.wording import in_brackets, names
from safelaunch.model import Case, Collective, Location, RankFacts

Use = tuple[int, str]  # elements and their type
MAKES = "new_group"


@dataclass(frozen=True)
class GroupOrder:
    """One call that ranks make in different groups.

    Args:
        ranks: by the group in which they make it.
        call: one like it, at its line.
        use: what it brings.
        made: where groups are made, if all of them are made at one line.
    """

    ranks: dict[str, list[int]]
    call: Collective
    use: Use
    made: Location | None

    @property
    def summary(self) -> str:
        sides = [f"group {group} on {names(ranks)}" for group, ranks in self.ranks.items()]
        numel, dtype = self.use
        return (
            f"ranks made their process groups in different orders: {numel} x {dtype} of {self.call.op}"
            f"{in_brackets(self.call.location)} goes to {', to '.join(sides)}"
        )

    remedy = "make the groups in one order on all ranks: not by rank, nor over a set"


def group_order(case: Case, call: Collective) -> GroupOrder | None:
    """The first call of a group that some ranks make in another one, by what all of them use these groups for.

    The groups have the same members, and all ranks bring the same things to as many of them: it is the groups that are
    exchanged, and not what is brought.

    Args:
        case: of all ranks.
        call: one that hangs, or has failed.
    """
    alike = _alike(case, call)
    uses = {facts.rank: found for facts in case.ranks if (found := _uses(facts, alike, call))}
    same = len({frozenset(of) for of in uses.values()}) == len({frozenset(of.values()) for of in uses.values()}) == 1
    if len(uses) < 2 or not same or any(len({*of.values()}) != len(of) or len(of) < 2 for of in uses.values()):
        return None
    by_use = {rank: {use: group for group, use in of.items()} for rank, of in uses.items()}
    for use in next(iter(uses.values())).values():
        ranks: dict[str, list[int]] = {}
        for rank, groups in by_use.items():
            ranks.setdefault(groups[use], []).append(rank)
        if len(ranks) > 1:
            return GroupOrder(ranks, call, use, _made_at(case.ranks[0]))
    return None


def _alike(case: Case, call: Collective) -> set[str]:
    """The groups of the same members as that of a call, as far as members are known."""
    members = {group.name: group.ranks for group in case.groups}
    used = {one.group for facts in case.ranks for one in facts.collectives if one.group_size == call.group_size}
    return {name for name in used if members.get(name) == members.get(call.group)}


def _uses(facts: RankFacts, groups: set[str], call: Collective) -> dict[str, Use]:
    """What a rank makes in each of these groups at the number, by the operation and at the line of a call, as far as
    lines are known."""
    known = current_calls(facts) or facts.recorded or ()
    own = (one for one in known if one.group in groups and (one.seq, one.op) == (call.seq, call.op))
    there = (one for one in own if None in (one.location, call.location) or one.location == call.location)
    return {one.group: (one.numel, one.dtype) for one in there}


def _made_at(facts: RankFacts) -> Location | None:
    """The one line at which a rank makes its groups."""
    lines = {one.location for one in facts.collectives if one.op == MAKES}
    return next(iter(lines)) if len(lines) == 1 else None

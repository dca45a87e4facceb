"""What ranks brought to one number of a group: the variants of a call on which they should agree."""

from __future__ import annotations

from safelaunch.diagnosis.blame.loop_exit import Side
from safelaunch.diagnosis.waitgraph.calls import arrival, blocked_in, differs
from safelaunch.model import Case, Collective


def at(case: Case, met: Collective) -> list[Side]:
    """The ranks that came to the number of a call, by what they came with."""
    sides: list[Side] = []
    for facts in case.ranks:
        own = next((call for call in blocked_in(facts) if same_place(call, met)), None)
        call = own or (arrival(facts, met) if facts.exit is None else None)
        if call is None or call.seq != met.seq:
            continue
        for side in sides:
            if not differs(side[0][0], facts, met):
                side.append((facts, call))
                break
        else:
            sides.append([(facts, call)])
    return sides


def same_place(one: Collective, other: Collective) -> bool:
    """Whether two calls have one number in one group."""
    return (one.group, one.seq) == (other.group, other.seq)

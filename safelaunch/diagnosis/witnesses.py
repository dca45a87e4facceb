"""What speaks for one side where ranks disagree, from outside of that moment: groups that do the same elsewhere, and
the steps after which a call came before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.habits import OFTEN, Departure
from safelaunch.diagnosis.waits import canonical, is_message
from safelaunch.model import Case, Collective, RankFacts

LONG = 5  # calls in a row after which another one came as before are no chance; an estimate

Side = Sequence[tuple[RankFacts, Collective]]
Site = tuple[str, object]


def other_than_its_like(case: Case, sides: Sequence[Side]) -> Departure | None:
    """One rank has come to a number with another call than its peers, and groups of other ranks, which had made the
    same calls at the same lines until then, went on as those peers: groups of one dimension of a mesh run alike."""
    if len(sides) != 2:
        return None
    here = {facts.rank for side in sides for facts, _ in side}
    group, seq = sides[0][0][1].group, sides[0][0][1].seq
    known = _history(facts for side in sides for facts, _ in side)
    own = {number: site for (name, number), site in known.items() if name == group and number < seq}
    votes = set()
    others = _history(facts for facts in case.ranks if facts.rank not in here)
    for name in {name for name, _ in others} - {group}:
        theirs = {number: site for (of, number), site in others.items() if of == name}
        common = own.keys() & theirs.keys()
        alike = len(common) >= OFTEN and all(own[number] == theirs[number] is not None for number in common)
        if alike and seq in theirs:
            votes.add(theirs[seq])
    for odd, rest in itertools.permutations(sides):
        if len(odd) == 1 and votes == {_site(rest[0][1])} and None not in votes and _site(odd[0][1]) not in votes:
            call = rest[0][1]
            line = call.location.line if call.location is not None else "?"
            text = f"other groups had made the same calls until then, and went on with {call.op} at line {line}"
            return Departure(odd[0][0].rank, text)
    return None


def _history(ranks: Iterable[RankFacts]) -> dict[tuple[str, int], Site | None]:
    """By group and number: the call, or None where ranks differ about it."""
    found: dict[tuple[str, int], Site | None] = {}
    for facts in ranks:
        for call in facts.calls:
            if is_message(call) or call.location is None:
                continue
            key, site = (call.group, call.seq), _site(call)
            found[key] = site if found.get(key, site) == site else None
    return found


def _site(call: Collective) -> Site:
    return canonical(call.op), call.location


def other_interval(sides: Sequence[Side]) -> Departure | None:
    """One rank has come to a call after fewer or more of another one than each time before, or makes one more of those
    instead, where all others do as always: what is done every so many steps."""
    if len(sides) != 2:
        return None
    found = []
    for rare, often in itertools.permutations(sides):
        departures = [_departure(pair, rare[0][1], often[0][1]) for pair in (*rare, *often)]
        usual = {usual for usual, _, _ in departures}
        departed = [text for _, text, away in departures if away]
        if len(usual) == 1 and None not in usual and len(departed) == 1:
            rank = next(
                facts.rank for (facts, _), (_, _, away) in zip((*rare, *often), departures, strict=True) if away
            )
            found.append(Departure(rank, f"rank {rank} {departed[0]}"))
    return found[0] if len(found) == 1 else None


def _departure(pair: tuple[RankFacts, Collective], rare: Collective, often: Collective) -> tuple[int | None, str, bool]:
    """After how many of the frequent calls the rare one has always come (None: not known, or not always), what this
    rank has done now, and whether that is another number."""
    facts, now = pair
    calls = [call for call in facts.calls if call.group == rare.group and call.thread == now.thread and call.t <= now.t]
    counts, run = [], 0
    for call in calls[:-1]:
        if _site(call) == _site(often):
            run += 1
        else:
            if run and _site(call) == _site(rare):
                counts.append(run)
            run = 0
    usual = counts[0] if counts and len({*counts}) == 1 and counts[0] >= LONG else None
    if usual is None or not calls or calls[-1] != now:
        return None, "", False
    line = rare.location.line if rare.location is not None else "?"
    if _site(now) == _site(rare):
        return usual, f"came to line {line} after {run} x {often.op}, and after {usual} each time before", run != usual
    return (
        usual,
        f"made {run} x {often.op} and makes one more: each time before it came then to line {line}",
        run >= usual,
    )

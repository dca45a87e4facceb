"""What speaks for one side where ranks disagree, from outside of that moment: groups that do the same elsewhere, and
the steps after which a call came before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from safelaunch.diagnosis.blame.history import OFTEN, Deviation
from safelaunch.diagnosis.blame.rank_guard import OF_SOME
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.waitgraph.calls import canonical, frames_of
from safelaunch.diagnosis.wording import call_at, short
from safelaunch.model import Case, Collective, RankFacts

LONG = 5  # calls in a row after which another one came as before are no chance; an estimate

Side = Sequence[tuple[RankFacts, Collective]]
Site = tuple[str, object]


def other_than_its_like(case: Case, sides: Sequence[Side]) -> Deviation | None:
    """One rank has come to a number with another call than its peers, and groups of other ranks, as large, which had
    made the same calls at the same lines until then, at two lines or more, went on as those peers: groups of one
    dimension of a mesh run alike. A call below a condition on the rank may be meant for one of these groups alone."""
    if len(sides) != 2:
        return None
    here = {facts.rank for side in sides for facts, _ in side}
    now = sides[0][0][1]
    known = _history((facts for side in sides for facts, _ in side), now.group_size)
    own = {number: site for (name, number), site in known.items() if name == now.group and number < now.seq}
    beside = [facts for facts in case.ranks if facts.rank not in here]
    others = _history(beside, now.group_size)
    votes = set()
    for name in {name for name, _ in others} - {name for name, _ in known}:
        theirs = {number: site for (of, number), site in others.items() if of == name}
        since = max(min(own, default=now.seq), min(theirs))
        common = [(own.get(number), theirs.get(number)) for number in range(since, now.seq)]
        alike = len(common) >= OFTEN and all(mine == its is not None for mine, its in common)
        if alike and len({*common}) > 1 and now.seq in theirs:
            votes.add(theirs[now.seq])
    for odd, rest in itertools.permutations(sides):
        facts, call = odd[0]
        if len(odd) > 1 or votes != {_site(rest[0][1])} or None in votes or _site(call) in votes:
            continue
        if not _is_for_some(case, facts, call):
            usual = f"other groups that had made the same calls until then went on to {call_at(rest[0][1])}"
            return Deviation(facts.rank, f"rank {facts.rank} makes {call_at(call)}, while {usual}")
    return None


def _is_for_some(case: Case, facts: RankFacts, call: Collective) -> bool:
    """Whether a call stands below a condition on the rank, or its place in a mesh."""
    lines = by_place(case.source)
    found = [lines.get((frame.file, frame.line)) for frame in frames_of(facts, call.thread)]
    texts = [condition.text for line in found if line is not None for condition in line.conditions]
    return any(OF_SOME.search(text) or "rank" in text.lower() for text in texts)


def _history(ranks: Iterable[RankFacts], size: int) -> dict[tuple[str, int], Site | None]:
    """By group, of this size, and number: the call, or None where ranks differ about it."""
    found: dict[tuple[str, int], Site | None] = {}
    for facts in ranks:
        for call in facts.calls:
            if call.is_message or call.location is None or call.group_size != size:
                continue
            key, site = (call.group, call.seq), _site(call)
            found[key] = site if found.get(key, site) == site else None
    return found


def _site(call: Collective) -> Site:
    return canonical(call.op), call.location


def other_interval(sides: Sequence[Side]) -> Deviation | None:
    """One rank makes one more of a call where another one has come each time before, and its peers come to that one;
    or it comes to it after fewer or more of them than often before, and all others do as always: what is done every so
    many steps."""
    if len(sides) != 2:
        return None
    found = []
    for rare, often in itertools.permutations(sides):
        known = {pair[0].rank: _departure(pair, rare[0][1], often[0][1]) for pair in (*rare, *often)}
        usual = {usual for usual, _, _ in known.values()}
        departed = [Deviation(rank, f"rank {rank} {text}") for rank, (_, text, away) in known.items() if away]
        if len(usual) == 1 and None not in usual and len(departed) == 1:
            found += departed
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
    if calls and calls[0].seq != 1:
        del counts[:1]  # the record does not hold where it began
    usual = counts[0] if counts and len({*counts}) == 1 and counts[0] >= LONG else None
    if usual is None or not calls or calls[-1] != now:
        return None, "", False
    at = f"{rare.op} ({short(rare.location)})" if rare.location is not None else rare.op
    if _site(now) == _site(rare):
        return (
            usual,
            f"came to {at} after {run} x {often.op}, and after {usual} each time before",
            run != usual and len(counts) >= OFTEN,
        )
    return (
        usual,
        f"skipped {at}, to which it came after {usual} x {often.op} each time before, and makes one more",
        run >= usual,
    )

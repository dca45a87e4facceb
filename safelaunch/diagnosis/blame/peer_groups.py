"""What speaks for one side where ranks disagree, from outside of that moment: groups that do the same elsewhere, and
the steps after which a call came before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.blame.deviation import OFTEN, Deviation
from safelaunch.diagnosis.blame.rank_guard import OF_SOME
from safelaunch.diagnosis.blame.variants import Place, Variant
from safelaunch.diagnosis.lines import by_place
from safelaunch.diagnosis.waitgraph.calls import canonical, frames_of
from safelaunch.diagnosis.wording import call_at, short
from safelaunch.model import Case, Collective, RankFacts

LONG = 5  # calls in a row after which another one came as before are no chance; an estimate

Site = tuple[str, object]
Calls = dict[int, Site | None]  # of a group, by number: None where ranks differ about it


def unlike_similar_groups(case: Case, variants: Sequence[Variant]) -> Deviation | None:
    """One rank has come to a number with another call than its peers, and similar groups went on as those peers.

    Those are groups of other ranks, as large, which had made the same calls at the same lines until then, at two lines
    or more: groups of one dimension of a mesh run alike. A call below a condition on the rank may be meant for one of
    these groups alone.
    """
    if len(variants) != 2:
        return None
    followers = _sites_of_similar_groups(case, variants)
    for outlier, rest in itertools.permutations(variants):
        facts, call = outlier[0]
        if len(outlier) > 1 or followers != {_site(rest[0][1])} or _site(call) in followers:
            continue
        if not _is_for_some(case, facts, call):
            usual = f"other groups that had made the same calls until then went on to {call_at(rest[0][1])}"
            return Deviation(facts.rank, f"rank {facts.rank} makes {call_at(call)}, while {usual}")
    return None


def _sites_of_similar_groups(case: Case, variants: Sequence[Variant]) -> set[Site | None]:
    """The calls with which groups of other ranks have come to this number, where they had come to those before it with
    the same calls as this group."""
    met = variants[0][0][1]
    here = {facts.rank: facts for variant in variants for facts, _ in variant}
    known = _history(here.values(), met.group_size)
    own = {number: site for number, site in known.get(met.group, {}).items() if number < met.seq}
    others = _history((facts for facts in case.ranks if facts.rank not in here), met.group_size)
    similar = [theirs for name, theirs in others.items() if name not in known and _are_alike(own, theirs, met.seq)]
    return {theirs[met.seq] for theirs in similar if met.seq in theirs}


def _are_alike(own: Calls, theirs: Calls, until: int) -> bool:
    """Whether two groups have made the same calls up to a number, often, and at two lines or more."""
    since = max(min(own, default=until), min(theirs))
    both = [(own.get(number), theirs.get(number)) for number in range(since, until)]
    return len(both) >= OFTEN and len({*both}) > 1 and all(mine == its is not None for mine, its in both)


def _is_for_some(case: Case, facts: RankFacts, call: Collective) -> bool:
    """Whether a call stands below a condition on the rank, or its place in a mesh."""
    lines = by_place(case.source)
    where = [lines.get((frame.file, frame.line)) for frame in frames_of(facts, call.thread)]
    texts = [condition.text for line in where if line is not None for condition in line.conditions]
    return any(OF_SOME.search(text) or "rank" in text.lower() for text in texts)


def _history(ranks: Iterable[RankFacts], size: int) -> dict[str, Calls]:
    """The calls of each group of this size."""
    groups: dict[str, Calls] = {}
    for facts in ranks:
        for call in facts.calls:
            if call.is_message or call.location is None or call.group_size != size:
                continue
            calls, site = groups.setdefault(call.group, {}), _site(call)
            calls[call.seq] = site if calls.get(call.seq, site) == site else None
    return groups


def _site(call: Collective) -> Site:
    return canonical(call.op), call.location


def changed_interval(variants: Sequence[Variant]) -> Deviation | None:
    """One rank comes to what is done every so many steps after another number of steps than ever, and its peers as
    always.

    - It makes one more of a call where another one has come each time before, and its peers come to that one.
    - Or it comes to that one after fewer or more of them than often before.
    """
    if len(variants) != 2:
        return None
    deviations = []
    for rare, often in itertools.permutations(variants):
        intervals = {pair[0].rank: _interval(pair, rare[0][1], often[0][1]) for pair in (*rare, *often)}
        known = {rank: interval for rank, interval in intervals.items() if interval is not None}
        deviating = [rank for rank, interval in known.items() if interval.deviates]
        usual = {interval.usual for interval in known.values()}
        if len(known) == len(intervals) and len(usual) == 1 and len(deviating) == 1:
            rank = deviating[0]
            deviations.append(Deviation(rank, f"rank {rank} {known[rank].text}"))
    return deviations[0] if len(deviations) == 1 else None


@dataclass(frozen=True)
class _Interval:
    """After how many of the frequent calls the rare one has always come to a rank, what the rank has done now, and
    whether that is something else."""

    usual: int
    text: str
    deviates: bool


def _interval(pair: Place, rare: Collective, often: Collective) -> _Interval | None:
    """None where it is not known, or was not always the same."""
    facts, now = pair
    calls = [call for call in facts.calls if call.group == rare.group and call.thread == now.thread and call.t <= now.t]
    if not calls or calls[-1] != now:
        return None
    counts, run = _counts(calls[:-1], rare, often)
    if calls[0].seq != 1:
        del counts[:1]  # the record does not hold where it began
    if len({*counts}) != 1 or counts[0] < LONG:
        return None
    usual = counts[0]
    at = f"{rare.op} ({short(rare.location)})" if rare.location is not None else rare.op
    if _site(now) == _site(rare):
        text = f"came to {at} after {run} x {often.op}, and after {usual} each time before"
        return _Interval(usual, text, run != usual and len(counts) >= OFTEN)
    text = f"skipped {at}, to which it came after {usual} x {often.op} each time before, and makes one more"
    return _Interval(usual, text, run >= usual)


def _counts(calls: Iterable[Collective], rare: Collective, often: Collective) -> tuple[list[int], int]:
    """How many frequent calls, in a row, have led to each rare one, and how many have come since the last other one."""
    counts, run = [], 0
    for call in calls:
        if _site(call) == _site(often):
            run += 1
        else:
            if run and _site(call) == _site(rare):
                counts.append(run)
            run = 0
    return counts, run

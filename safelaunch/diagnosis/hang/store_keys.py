"""Ranks that wait for others in the store of torch.distributed: who was to set the key that they wait for."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from safelaunch.diagnosis.blame.deviation import OFTEN, Deviation
from safelaunch.diagnosis.frames import user_frame
from safelaunch.diagnosis.stall.endpoints import STORE
from safelaunch.diagnosis.verdicts import hang_verdict, place_of, waiters
from safelaunch.diagnosis.view import View
from safelaunch.diagnosis.waitgraph.store import KEY
from safelaunch.diagnosis.wording import at, is_waiting, names
from safelaunch.model import Case, Location, RankFacts, Verdict

_NUMBER = re.compile(r"\d{1,18}")  # of a key; one with more is a text
SHOWN = 3  # keys


def key_missing(view: View) -> Verdict | None:
    """Ranks wait in collectives for others, and all of those wait for a key in the store that nobody sets.

    How it was concluded: whoever stands at the end of all chains is in a call on its connection to the store, which
    answers when somebody has set the key. A rank is named only if it alone has set all keys like it before, and now
    waits for the others without having set this one. Keys are alike if they differ in numbers only. There must be three
    of them, or one where two ranks at least ask for the key.

    What to do: compare the key that is waited for with those that are set, and the conditions under which they are.
    """
    graph = view.graph
    ranks = view.by_rank
    asking = sorted({rank for rank, _ in graph.sinks})
    if not graph.wait_for(asking, KEY):
        return None
    blocked = sorted({wait.rank for wait in graph.waits})
    setter = _who_sets(view.case, asking, blocked)
    places: dict[tuple[str, Location | None], list[int]] = {}
    for rank in asking:
        phase = next((phase.name for phase in ranks[rank].phases if phase.name.startswith("store.")), "the store")
        places.setdefault((phase, user_frame(ranks[rank].stack)), []).append(rank)
    return hang_verdict(
        view,
        "SL311",
        _headline(setter, _called(view, asking), asking, blocked),
        (setter.rank,) if setter is not None else (),
        location=next(iter(places))[1]
        if setter is None
        else place_of(view, next(wait for wait in graph.waits if wait.rank == setter.rank)),
        because=(
            *((setter.text,) if setter is not None else ()),
            *(f"{is_waiting(who)} in {call}" + at(place) for (call, place), who in places.items()),
            *waiters(view),
        ),
        remedy="compare the key that is waited for with those that are set, and under which condition",
        confidence="medium",
        waiting=(*asking, *blocked),
    )


def _called(view: View, asking: list[int]) -> str:
    """`the key lr/39 of the store`, for which all of these ranks wait."""
    keys = {wait.resource.called for wait in view.graph.external if wait.rank in asking and wait.resource.kind is KEY}
    return keys.pop() if len(keys) == 1 else f"keys in {STORE}"


def _headline(setter: Deviation | None, key: str, asking: list[int], blocked: list[int]) -> str:
    whom = "it" if len(asking) == 1 else "them"
    peers = f"and {is_waiting(blocked)} for {whom}"
    if setter is not None:
        return f"rank {setter.rank} has not set {key}; {is_waiting(asking)} for it, {peers}"
    return f"{is_waiting(asking)} for {key}, which nobody has set, {peers}"


def _who_sets(case: Case, asking: list[int], blocked: list[int]) -> Deviation | None:
    """The rank that alone has set keys like the one that all of them lack, and not this one."""
    key = _key_that_all_lack(case, asking)
    if key is None:
        return None
    own = _without_its_part({rank: [key] for rank in asking}, case.ranks)
    if len(own) == 1 and own[0].rank in blocked:
        return own[0]
    # Two agree on what they ask for.
    setters = [*_setters(key, case.ranks, 1 if len(asking) > 1 else OFTEN).values()]
    setter = setters[0] if len(setters) == 1 else None
    if setter is None or setter.rank not in blocked:
        return None
    others = [facts for facts in case.ranks if facts.rank not in (*asking, setter.rank)]
    if any(facts.rank in blocked or facts.missing for facts in others):
        return None  # who sets none either has gone on without it, or may have: who asks may be ahead of all
    like = f"{len(setter.keys)} keys" if len(setter.keys) > 1 else "a key"
    which = f"the last one {setter.latest}" if len(setter.keys) > 1 else setter.latest
    return Deviation(setter.rank, f"rank {setter.rank} alone has set {like} like it ({which}), and not {key}")


def _key_that_all_lack(case: Case, asking: list[int]) -> str | None:
    """The one key that each of these ranks wants, and nobody has set; None where not all ranks are known."""
    there = {key for facts in case.ranks for key in facts.store_keys}
    lacks = [{*facts.store_wants} - there for facts in case.ranks if facts.rank in asking]
    if len(case.ranks) != case.world_size or len(lacks[0]) != 1 or any(keys != lacks[0] for keys in lacks):
        return None
    return lacks[0].pop()


def shape(key: str) -> str:
    """A key without its numbers."""
    return _NUMBER.sub("#", key)


def all_ask(view: View) -> Verdict | None:
    """Every rank of the job waits in the store for keys, and none is left to set them.

    How it was concluded: the main thread of each rank is in a call that waits for keys. The ranks themselves say which,
    and which they have set. A rank is named that has set a later key of that kind without the one for which all others
    wait. So is the rank whose number stands in a key that nobody has set, where each other rank has set its own. Where
    there is none, somebody outside of the job may be meant to set the keys (SL399).

    What to do: compare the keys that are waited for with those that are set, rank by rank.
    """
    ranks = view.living
    if len(ranks) < 2 or not all(facts.store_wants for facts in ranks) or not view.graph.wait_for(view.by_rank, KEY):
        return None
    there = {key for facts in ranks for key in facts.store_keys}
    lacks = {facts.rank: [key for key in facts.store_wants if key not in there] for facts in ranks}
    if not all(lacks.values()):
        return None  # one of them has its answer, and is about to go on
    outliers = _gone_past(lacks, ranks) or _without_its_part(lacks, ranks)
    named = outliers[0] if len(outliers) == 1 else None
    first = view.by_rank[named.rank] if named is not None else ranks[0]
    return hang_verdict(
        view,
        "SL311" if named is not None else "SL399",
        f"{named.text}; now all wait in {STORE}"
        if named is not None
        else f"{names(facts.rank for facts in ranks)} all wait in {STORE}, for keys that nobody has set",
        (named.rank,) if named is not None else (),
        location=user_frame(first.stack),
        because=tuple(_who_lacks_what(view, lacks)),
        remedy="compare the keys that are waited for with those that are set, rank by rank",
        confidence="medium" if named is not None else "low",
        waiting=(facts.rank for facts in ranks),
    )


def _who_lacks_what(view: View, lacks: Mapping[int, list[str]]) -> Iterator[str]:
    """A line for those who wait for the same keys, most ranks first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, keys in lacks.items():
        groups.setdefault(tuple(keys), []).append(rank)
    for missing, who in sorted(groups.items(), key=lambda one: -len(one[1])):
        shown = ", ".join(missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
        place = user_frame(view.by_rank[who[0]].stack)
        yield f"{is_waiting(who)} for {shown}{at(place)}, which nobody has set"


def _without_its_part(lacks: Mapping[int, list[str]], ranks: Sequence[RankFacts]) -> list[Deviation]:
    """The rank that has not set its part, of keys that each rank sets with its own number: all others have."""
    keys = {key for own in lacks.values() for key in own}
    if len(keys) != 1 or len(ranks) < 3:
        return []
    key = keys.pop()
    deviations = []
    for place in _NUMBER.finditer(key):
        parts = {facts.rank: f"{key[: place.start()]}{facts.rank}{key[place.end() :]}" for facts in ranks}
        owners = {part: rank for rank, part in parts.items()}
        without = [facts.rank for facts in ranks if parts[facts.rank] not in facts.store_keys]
        foreign = any(owners.get(own, facts.rank) != facts.rank for facts in ranks for own in facts.store_keys)
        if len(without) == 1 and parts[without[0]] == key and not foreign:
            text = f"rank {without[0]} has not set {key}, its part of what each other rank has set with its own number"
            deviations.append(Deviation(without[0], text))
    return deviations


def _gone_past(lacks: Mapping[int, list[str]], ranks: Sequence[RankFacts]) -> list[Deviation]:
    """The ranks that have gone past a key for which all others wait: each alone has set those before, which differ from
    it in one number, and one behind it."""
    counts = collections.Counter(key for keys in lacks.values() for key in {*keys})
    others = len(lacks) - 1
    setters = {key: _setters(key, ranks) for key, count in counts.items() if count >= others}
    deviations = []
    for rank, own in lacks.items():
        peers = next(keys for other, keys in lacks.items() if other != rank)
        wanted = (key for key in peers if counts[key] - (key in own) == others)
        past = ((key, setters[key][rank]) for key in wanted if rank in setters[key])
        for key, setter in past:
            latest = max(setter.keys)
            if latest > setter.number:
                text = f"rank {rank} has set {setter.keys[latest]}, and not {key}, which all others wait for"
                deviations.append(Deviation(rank, text))
                break
    return deviations


@dataclass(frozen=True)
class _Setter:
    """The rank that alone has set such keys: `keys` by the number in which they differ, which is `number` in the one
    that is missing."""

    rank: int
    number: int
    keys: dict[int, str]

    @property
    def latest(self) -> str:
        return next(reversed(self.keys.values()))


def _setters(key: str, ranks: Sequence[RankFacts], often: int = OFTEN) -> dict[int, _Setter]:
    """The ranks each of which, and no other, has set so many keys that differ from this one in one number."""
    setters: dict[int, _Setter] = {}
    for place, number in enumerate(map(int, _NUMBER.findall(key))):
        series = {facts.rank: own for facts in ranks if (own := _series(facts, key, place))}
        for rank, own in series.items() if len(series) == 1 else ():
            if len(own) >= often:
                setters.setdefault(rank, _Setter(rank, number, own))
    return setters


def _series(facts: RankFacts, key: str, place: int) -> dict[int, str]:
    """The keys that a rank has set which differ from this one only in the number at a place, by that number."""
    wanted = _NUMBER.findall(key)
    keys = {}
    for own in facts.store_keys:
        numbers = _NUMBER.findall(own)
        if own != key and shape(own) == shape(key):
            others = [*numbers[:place], *numbers[place + 1 :]]
            if others == [*wanted[:place], *wanted[place + 1 :]]:
                keys[int(numbers[place])] = own
    return keys
